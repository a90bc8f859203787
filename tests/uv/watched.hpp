// watched.hpp - a connection watched for silence, by a bare timer or by connection_timeouts, that
// knows when its peer last spoke and notes whether it was closed before its limit.
#pragma once
#include <memory>
#include <optional>

#include "idlewheel/connection/connection_timeouts.hpp"
#include "tests/uv/support.hpp"

namespace idlewheel::uv_tests {

enum class watch { bare_timer, idle_limit };

class watched final : public timeout_handler {
 public:
  watched(loop_wheel& wheel, transport kind, watch how, const timeout_policy& policy)
      : wheel_{wheel}, limit_{policy.idle}, end{wheel.loop(), kind, [this](std::size_t n) {
                                                  heard(n);
                                                }} {
    said = clock_now();
    if (how == watch::bare_timer)
      wheel_.arm(silence_, limit_);
    else
      timeouts.emplace(reaper_, policy, end.view(), *this);
  }

  // The peer speaks now.
  void say() { said = end.say(); }

  bool closed() const { return closed_at != instant{}; }
  // Closed though less than the limit had passed since the peer last spoke.
  bool closed_early() const { return closed() && between(said, closed_at) < limit_; }

  verdict on_timeout(const expiry& e) noexcept override {
    EXPECT_EQ(e.reason, expiry_reason::idle);
    close();
    return verdict::close();
  }

 private:
  void heard(std::size_t n) {
    ++reads;
    if (on_heard) on_heard();
    if (closed()) return;
    if (timeouts)
      timeouts->on_read(n);
    else
      wheel_.refresh(silence_);
  }
  void close() { closed_at = clock_now(); }

  loop_wheel& wheel_;
  connection_reaper reaper_{wheel_};
  timespan limit_;
  timer silence_{[this] { close(); }};

 public:
  endpoint end;
  std::optional<connection_timeouts> timeouts;
  std::function<void()> on_heard;  // before the refresh
  instant said;
  instant closed_at{};
  int reads = 0;
};

using crowd = std::vector<std::unique_ptr<watched>>;

inline std::size_t count_closed(const crowd& all) {
  std::size_t n = 0;
  for (const auto& c : all) n += c->closed();
  return n;
}
inline std::size_t count_closed_early(const crowd& all) {
  std::size_t n = 0;
  for (const auto& c : all) n += c->closed_early();
  return n;
}

}  // namespace idlewheel::uv_tests
