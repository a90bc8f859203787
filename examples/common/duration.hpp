// duration.hpp - durations as people write them: 500us, 100ms, 30s, 5m, 1h.
#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <variant>

namespace example {

// The duration, or why the text is not one. A whole number with a unit and nothing else: no sign,
// no fraction, no space, up to 292 years.
std::variant<std::chrono::nanoseconds, std::string> parse_duration(std::string_view text);

}  // namespace example
