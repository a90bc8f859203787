// connection_reaper.hpp - the connections of one host together: what became of them.
//
// What   Counts the connections closed, by reason, and names the host they run on. One per host is
//        usual; with several, each counts its own.
//
// Promises
//   Lifetime  It outlives its connection_timeouts, or they are stopped before; so does its host.
//   Threads   The host's.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "idlewheel/connection/expiry.hpp"
#include "idlewheel/wheel/timer_host.hpp"

namespace idlewheel {

class connection_reaper {
 public:
  explicit connection_reaper(timer_host& host) noexcept : host_{&host} {}
  connection_reaper(const connection_reaper&) = delete;
  connection_reaper& operator=(const connection_reaper&) = delete;

  timer_host& host() const noexcept { return *host_; }

  // Connections closed for this reason, those that still linger included; the sum over all reasons.
  // Each counts once. While a handler is asked, its connection counts as closed. O(1).
  std::uint64_t closed(expiry_reason reason) const noexcept {
    return closed_[static_cast<std::size_t>(reason)];
  }
  std::uint64_t closed() const noexcept;

  std::uint64_t extended() const noexcept { return extended_; }  // answers that asked for more time
  std::uint64_t pings() const noexcept { return pings_; }        // on_ping_due() called

 private:
  friend class connection_timeouts;

  timer_host* host_;
  std::array<std::uint64_t, expiry_reasons> closed_{};
  std::uint64_t extended_ = 0;
  std::uint64_t pings_ = 0;
  bool* ended_ = nullptr;  // of the connection whose handler is running: it stopped or is gone
};

}  // namespace idlewheel
