#include "journal.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace example {
namespace {

using nlohmann::ordered_json;

double in_ms(std::chrono::nanoseconds d) {
  return static_cast<double>(d.count() / 1'000) / 1'000;  // to the microsecond
}

// A reason or an address may hold any bytes; an object with a replacement character is still one.
std::string dump(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string by_reason(const std::map<std::string, std::uint64_t>& counts) {
  std::string all;
  for (const auto& [reason, count] : counts)
    all += fmt::format("{}{} {}", all.empty() ? "" : ", ", reason, count);
  return all.empty() ? "none" : all;
}

constexpr const char* erase_line = "\r\033[K";

}  // namespace

totals& totals::operator+=(const totals& other) {
  accepted += other.accepted;
  open += other.open;
  for (const auto& [reason, count] : other.closed) closed[reason] += count;
  refreshes += other.refreshes;
  relinks += other.relinks;
  latest_close = std::max(latest_close, other.latest_close);
  for (const auto& [reason, count] : other.would_close) would_close[reason] += count;
  return *this;
}

journal::journal(std::string program, log_format format, bool quiet)
    : program_{std::move(program)},
      format_{format},
      quiet_{quiet},
      terminal_{isatty(STDOUT_FILENO) == 1} {}

void journal::listening(const std::string& address) {
  if (format_ == log_format::json)
    line(dump({{"event", "listening"}, {"address", address}}));
  else
    line("listening on " + address);
  flush();
}

void journal::opened(std::uint64_t id, const std::string& peer) {
  if (quiet_) return;
  if (format_ == log_format::json)
    line(dump({{"event", "open"}, {"id", id}, {"peer", peer}}));
  else
    line(fmt::format("open  {} {}", id, peer));
}

void journal::would_close(std::uint64_t id, const std::string& peer, const std::string& reason,
                          std::chrono::nanoseconds late) {
  if (quiet_) return;
  if (format_ == log_format::json)
    line(dump({{"event", "would_close"},
               {"id", id},
               {"peer", peer},
               {"reason", reason},
               {"late_ms", in_ms(late)}}));
  else
    line(fmt::format("would close {} {} {}", id, peer, reason));
}

void journal::closed(std::uint64_t id, const std::string& peer, const closing& how) {
  if (quiet_) return;
  if (format_ == log_format::json) {
    ordered_json object{{"event", "close"}, {"id", id}, {"peer", peer}, {"reason", how.reason}};
    object["idle_ms"] = in_ms(how.silent);
    object["late_ms"] = how.late ? ordered_json(in_ms(*how.late)) : ordered_json();
    object["rx_bytes"] = how.rx;
    object["tx_bytes"] = how.tx;
    line(dump(object));
    return;
  }
  const std::string late = how.late ? fmt::format(", {:.1f} ms late", in_ms(*how.late)) : "";
  line(fmt::format("close {} {} {}: silent {:.1f} ms{}, received {} bytes, sent {}", id, peer,
                   how.reason, in_ms(how.silent), late, how.rx, how.tx));
}

void journal::problem(const std::string& what) {
  flush();
  fmt::print(stderr, "{}{}: {}\n", terminal_ ? erase_line : "", program_, what);
}

void journal::summary(const totals& all) {
  status_.clear();
  if (format_ == log_format::json) {
    ordered_json object{{"event", "summary"},     {"accepted", all.accepted},
                        {"closed", all.closed},   {"refreshes", all.refreshes},
                        {"relinks", all.relinks}, {"latest_close_ms", in_ms(all.latest_close)}};
    if (!all.would_close.empty()) object["would_close"] = all.would_close;
    line(dump(object));
  } else {
    const std::string dry =
        all.would_close.empty() ? "" : "; would have closed: " + by_reason(all.would_close);
    line(fmt::format(
        "summary: accepted {}; closed: {}{}; refreshes {}, relinks {}; latest close {:.1f} ms",
        all.accepted, by_reason(all.closed), dry, all.refreshes, all.relinks,
        in_ms(all.latest_close)));
  }
  flush();
}

void journal::status(const totals& all, double refreshes_per_second) {
  const auto idle = all.closed.find("idle");
  status_ = fmt::format("{} open, {} closed idle, {:.0f} refreshes/s", all.open,
                        idle != all.closed.end() ? idle->second : 0, refreshes_per_second);
  pending_ += erase_line + status_;
  flush();
}

void journal::line(const std::string& text) {
  if (terminal_) pending_ += erase_line;
  pending_ += text;
  pending_ += '\n';
  if (terminal_) pending_ += status_;
}

void journal::flush() {
  if (pending_.empty()) return;
  std::fwrite(pending_.data(), 1, pending_.size(), stdout);
  std::fflush(stdout);
  pending_.clear();
}

}  // namespace example
