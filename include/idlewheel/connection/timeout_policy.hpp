// timeout_policy.hpp - the limits of a connection, shared by all connections that have the same.
//
// What   Plain numbers. 0 is off, everywhere, never "at once". A policy must outlive the connections
//        that use it and stay as it is meanwhile; to change a connection's limits, give it another.
// Not    Defaults for a protocol: all is off until you set it. docs/timeouts.md has them, and for
//        each limit when its clock starts, what moves it and what stops it.
//
//   kind                      fields                                    moved by
//   deadline of a phase       handshake header body request keep_alive  nothing
//   silence                   idle read_idle message_idle write_stall   what it names
//   rate                      min_rate_in min_rate_out                  each byte, by its share
//   heartbeat                 ping_after ping_timeout missed            any byte received
//                             ping_after_send                           any write
//   lifetime                  max_age age_grace age_jitter              nothing
//   after our half-close      linger                                    bytes that the peer still takes
#pragma once
#include <chrono>
#include <cstdint>

#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel {

// At least so many bytes per second, after a grace. The grace is a credit that is used up by time
// and refilled by bytes, never above its size: a fast start earns nothing for later.
struct transfer_rate {
  std::uint64_t bytes_per_second = 0;  // 0: off
  timespan grace = std::chrono::seconds{5};
};

struct timeout_policy {
  // Absolute deadlines of a phase.
  timespan handshake{};
  timespan header{};
  timespan body{};
  timespan request{};  // header and body together
  timespan keep_alive{};

  // Silence.
  timespan idle{};          // in both directions
  timespan read_idle{};     // nothing received
  timespan message_idle{};  // no whole message: pings and half messages do not count
  timespan write_stall{};   // something is queued and the peer takes nothing of it

  // What the idle limits (idle, read_idle, message_idle, keep_alive) shrink to under full pressure;
  // 0: they do not. See connection_reaper::set_pressure().
  timespan idle_min{};

  // How long our own pause may stop the peer's clocks, each time; 0: as long as we like.
  timespan max_pause = std::chrono::minutes{5};

  transfer_rate min_rate_in{};   // of a body
  transfer_rate min_rate_out{};  // of a queue that is not empty; one that empties between two looks
                                 // (half a grace apart) is taken for new

  // Heartbeat.
  timespan ping_after{};    // ping after so much receive silence
  timespan ping_timeout{};  // then wait so long for any byte
  unsigned missed = 1;      // so many pings unanswered, one after the other, and the peer is dead
  timespan ping_after_send{};  // ping when we have sent nothing for so long: for peers that time us

  // Lifetime. A connection's own age is max_age less a share of up to age_jitter, so that those
  // accepted together do not end together.
  timespan max_age{};
  timespan age_grace{};  // from the warning to the end
  double age_jitter = 0.1;

  timespan linger{};  // after our half-close, for the peer's

  // Throws std::invalid_argument that names the field and the value: a negative limit, a rate
  // without a grace, a jitter outside 0 to 1, missed outside 1 to 255, and limits that contradict
  // each other (one of them could never be reached). O(1).
  void validate() const;
};

}  // namespace idlewheel
