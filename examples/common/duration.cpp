#include "duration.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

namespace example {

std::variant<std::chrono::nanoseconds, std::string> parse_duration(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 5> units{
      {{"us", 1'000},
       {"ms", 1'000'000},
       {"s", 1'000'000'000},
       {"m", 60'000'000'000},
       {"h", 3'600'000'000'000}}};

  if (text.starts_with('-')) return "must not be negative";
  std::uint64_t count = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc::invalid_argument) return "is not a number with a unit (us, ms, s, m, h)";
  const std::string_view unit{rest, static_cast<std::size_t>(text.data() + text.size() - rest)};
  if (unit.empty()) return "lacks a unit (us, ms, s, m, h)";
  for (const auto& [name, ns] : units) {
    if (unit != name) continue;
    const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / ns);
    if (error == std::errc::result_out_of_range || count > most)
      return "is too long (292 years at most)";
    return std::chrono::nanoseconds{static_cast<std::int64_t>(count) * ns};
  }
  return "has an unknown unit '" + std::string{unit} + "' (us, ms, s, m, h)";
}

}  // namespace example
