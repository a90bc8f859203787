// expiry.hpp - what has run out, and what the program says to it.
#pragma once
#include <cstddef>
#include <optional>

#include "idlewheel/wheel/timespan.hpp"

namespace idlewheel {

enum class expiry_reason {
  handshake,
  header,
  body,
  request,
  keep_alive,
  idle,
  read_idle,
  message_idle,
  write_stall,
  rate_in,
  rate_out,
  peer_dead,
  max_age,
  linger,
  evicted,  // by connection_reaper::evict()
  drain,    // connection_reaper::begin_drain()
};
inline constexpr std::size_t expiry_reasons = 16;

// "handshake", "peer_dead", ...: for logs and counters.
const char* name_of(expiry_reason reason) noexcept;

// A limit that has run out.
struct expiry {
  expiry_reason reason;
  instant since;  // what the limit counts from
  instant due;    // when it ran out: the close is late by what has passed since then
};

class verdict {
 public:
  // The connection ends: its timeouts stop, and nothing more is delivered.
  static constexpr verdict close() noexcept { return verdict{}; }

  // More time, asked for by name: no limit of this connection is judged for another d, and no ping
  // is due. Activity counts meanwhile as ever. Negative is 0: judged again at the next tick.
  static constexpr verdict extend(timespan d) noexcept {
    verdict v;
    v.extension_ = d;
    return v;
  }

  // The connection ends gently: the program has queued what it still had to say ("408") and
  // half-closes. It counts as closed now, for this reason; its timeouts enter phase::closing, and
  // the handler is asked once more, when the peer has not ended it meanwhile. A policy without
  // linger leaves that to its limits of silence.
  static constexpr verdict linger() noexcept {
    verdict v;
    v.lingers_ = true;
    return v;
  }

  constexpr std::optional<timespan> extension() const noexcept { return extension_; }
  constexpr bool lingers() const noexcept { return lingers_; }

 private:
  constexpr verdict() noexcept = default;
  std::optional<timespan> extension_;
  bool lingers_ = false;
};

// The program's part of it. Each of these may do anything, also destroy the connection, its
// connection_timeouts, the reaper and the host.
class timeout_handler {
 public:
  // A limit has run out. After verdict::close() this connection is not asked again.
  virtual verdict on_timeout(const expiry&) noexcept = 0;

  // Send something that the peer answers, and tell on_write(): what is told meanwhile is the ping,
  // and that the peer takes it is no activity. Called again only when it is due again.
  virtual void on_ping_due() noexcept {}

  // In a dry run of the reaper, in place of on_timeout(): what would have been asked.
  virtual void on_would_close(const expiry&) noexcept {}

  // The connection has reached its age: let it end when its work is done ("Connection: close", a
  // GOAWAY). age_grace later comes on_timeout() with max_age; without a grace that comes at once and
  // this does not.
  virtual void on_age_due() noexcept {}

 protected:
  ~timeout_handler() = default;
};

}  // namespace idlewheel
