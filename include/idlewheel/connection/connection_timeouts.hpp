// connection_timeouts.hpp - every limit that one connection needs.
//
// What   A member of the connection, told of its reads, writes and phases. It asks its handler what
//        to do when a limit of the policy has run out, and by then has asked the socket whether it
//        has.
// Why    One wheel timer, whatever the number of limits: the soonest is all the wheel has to know.
//        A read costs a stamp and at most one relink.
// Not    The connection: it neither reads, writes nor closes. The handler does.
//
//   What is activity                                      What is not
//   - bytes received: on_read(n), n > 0                   - an event without bytes: on_read(0)
//   - bytes that the kernel holds for us at expiry        - bytes written that the peer does not take
//   - bytes that the peer has acknowledged since the      - a spurious wake-up, a retransmission
//     last look; on_write(n) only counts what was queued  - our own pings, though they are taken
//   - for message_idle only: on_message()                 - for message_idle: bytes, control frames
//   - what the program calls so: restart()
//   A connection whose bytes the program never sees (splice, sendfile, another library's descriptor)
//   calls neither on_read nor on_write: the kernel then says, at expiry, when the last ones came, and
//   whether the peer has taken more since the last look.
//
//   phase        limits besides those that always run (silence, heartbeat, lifetime, writes)
//   handshake    handshake
//   header       header, request                  enter it at the first byte of the request; for
//                                                 the first one, when the handshake ends
//   body         body, request, min_rate_in
//   handling     none
//   keep_alive   keep_alive, and that only while nothing is in flight
//   upgraded     none: the old protocol's deadlines are gone
//   closing      linger, in place of silence, heartbeat and lifetime; writes still run. When linger
//                is off those run on, after verdict::linger() anew and without lifetime
//
// Example
//   struct session final : idlewheel::timeout_handler {
//     session(idlewheel::connection_reaper& reaper, const idlewheel::timeout_policy& policy)
//         : timeouts{reaper, policy, idlewheel::socket_view{stream()}, *this} {}
//     idlewheel::verdict on_timeout(const idlewheel::expiry&) noexcept override {
//       close();
//       return idlewheel::verdict::close();
//     }
//     void on_bytes(std::size_t n) { timeouts.on_read(n); }
//     idlewheel::connection_timeouts timeouts;
//   };
//
// Promises
//   Early     Never: when the handler is asked, the limit has really passed since what it counts
//             from. Activity wins: a verdict is checked again at delivery, against the stamps and
//             against the socket (timer_host::look).
//   Re-entry  The handler may do anything, also destroy this object, its connection, the reaper or
//             the host.
//   Lifetime  Destroying it or stop() cancels everything; no handler is called. Reaper, host and
//             policy may die first only after stop().
//   Threads   The host's.
//   Time      A stall of the loop charges nobody: see timer_host.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "idlewheel/connection/connection_reaper.hpp"
#include "idlewheel/connection/detail/compact_instant.hpp"
#include "idlewheel/connection/expiry.hpp"
#include "idlewheel/connection/timeout_policy.hpp"
#include "idlewheel/wheel/socket_view.hpp"
#include "idlewheel/wheel/timer_host.hpp"

namespace idlewheel {

enum class phase : std::uint8_t {
  handshake,
  header,
  body,
  handling,
  keep_alive,
  upgraded,
  closing
};

// Why we do not read.
enum class pause : std::uint8_t {
  none,
  ours,  // we are busy: the peer's clocks stand still, up to max_pause
  peer,  // it does not take what we send: no clock stands still
};

class connection_timeouts {
 public:
  // Starts the clocks, from a fresh read of the host's: construct it when the connection is
  // accepted. A policy with every limit off arms nothing. On a closed host nothing is armed either.
  // O(1). Throws std::bad_alloc when the reaper's list cannot grow.
  connection_timeouts(connection_reaper& reaper, const timeout_policy& policy, socket_view socket,
                      timeout_handler& handler, phase first = phase::handshake);
  ~connection_timeouts() { stop(); }
  connection_timeouts(const connection_timeouts&) = delete;
  connection_timeouts& operator=(const connection_timeouts&) = delete;

  // n bytes were received. Call it from the read callback; 0 is no activity. The hot path: O(1).
  void on_read(std::size_t n) noexcept {
    if (n == 0 || stopped_) return;
    timer_host& host = this->host();
    // With no limit on there is no timer, and no turn's end at which the host settles its stamps.
    const bool armed = reads_move_ ? host.refresh(timer_) : timer_.armed();
    const bool rated = policy_->min_rate_in.bytes_per_second != 0;
    if (rated && host.stalls() != 0) settle_last_read();
    last_read_ = armed ? host.poll_time() : host.now();
    heard_ = heard::since_ping;
    if (rated) credit_in(n);
  }

  // n bytes were handed to the stream, or to the kernel. Whether the peer takes them is asked when
  // a limit has run out. O(1).
  void on_write(std::size_t n) noexcept;

  // A whole message has arrived. O(1).
  void on_message() noexcept;

  // The program itself calls this moment activity, for idle, read_idle and message_idle. It answers
  // no ping, and nobody takes what is queued for it. O(1).
  void restart() noexcept;

  // The connection is in this phase from now on, a fresh clock read. Entered again, its clock starts
  // anew. Once stopped it stays stopped. O(1).
  void enter(phase next) noexcept;
  phase in() const noexcept { return phase_; }

  // We stop reading, and why. Bytes that wait in the kernel meanwhile count from when they came, not
  // as news; where the kernel does not say when, from the look that first found them. O(1).
  void pause_reading(pause why = pause::peer) noexcept;
  void resume_reading() noexcept;

  // Other limits from now on, counted from the same activity; also from the handler. Once stopped
  // it stays stopped. O(1).
  void set_policy(const timeout_policy& policy) noexcept;

  // The connection ends, however it does: cancels everything. Idempotent. O(1).
  void stop() noexcept;
  bool stopped() const noexcept { return stopped_; }

  // The last activity known without asking the socket.
  instant last_activity() const noexcept;

 private:
  friend class connection_reaper;

  // What can come due: a limit, for a verdict, and what is none.
  enum class act : std::uint8_t { limit, ping, keep_warm, age_warning, look };
  struct due_act {
    act what = act::limit;
    expiry_reason reason{};
    instant since;
    instant due = instant::max();
  };
  struct schedule;  // what runs at the moment

  // on_read() knows nothing of the past, so it only ever says since_ping.
  enum class heard : std::uint8_t { never, since_ping, pinged, pinged_never };
  bool pinged() const noexcept { return heard_ >= heard::pinged; }
  bool program_reads() const noexcept {
    return heard_ == heard::since_ping || heard_ == heard::pinged;
  }

  connection_reaper& reaper() const noexcept { return detail::roster::reaper_of(place_); }
  timer_host& host() const noexcept { return detail::roster::host_of(place_); }

  // For the reaper.
  bool in_flight() const noexcept;
  bool busy() const noexcept { return in_flight() || outstanding_ != 0; }  // as of the last look
  instant idle_since() const noexcept;
  bool awaits_delivery() const noexcept;   // in a drain: looked at again and again
  bool leave(expiry_reason why) noexcept;  // true: it ends, and this may be gone
  void work_out_anew() noexcept;

  void settle_last_read() noexcept;
  void credit_in(std::size_t n) noexcept;
  void on_timer() noexcept;
  bool look_again() noexcept;  // bytes wait that the next poll will report
  void note_arrival(const socket_look& seen, instant now) noexcept;
  void note_told_writes(const socket_look& seen, instant now) noexcept;
  void note_untold_writes(const socket_look& seen, instant now) noexcept;
  timespan shortest_of_phase() const noexcept;
  void arm_within(timespan length, instant now) noexcept;
  instant judged_from(const due_act& next) const noexcept;
  void arm_soonest() noexcept;
  void arm(const schedule& all) noexcept;
  schedule soonest() const noexcept;
  instant stood_still(instant since, timespan lasted) const noexcept;
  instant peers_clock(instant since) const noexcept;
  double spread() const noexcept;
  instant ages_at() const noexcept;
  void add_drain(schedule& all) const noexcept;
  void settle_pause() noexcept;
  void note_taken(std::uint64_t bytes, instant when) noexcept;
  void send_ping() noexcept;
  bool ping() noexcept;  // false: stopped or destroyed by the handler
  bool waits_for_turn(const due_act& out) noexcept;
  bool ask(const due_act& out) noexcept;  // true: it ends, and this may be gone
  void set_phase(phase next, instant now) noexcept;
  template <class F>
  bool survives(F call) noexcept;  // false: stopped or destroyed by the handler

  // I1  While not stopped, and while some limit is on and the host open, timer_ is armed, for the
  //     soonest act or earlier. When reads_move_, only limits that a read moves are on, and its
  //     timeout is the shortest of them, so that a refresh keeps it so.
  // What a read touches comes first.
  timer timer_{[this] { on_timer(); }};
  instant last_read_;  // stamp of the last bytes received; see timer_host::latest()
  const timeout_policy* policy_;
  detail::roster::place* place_;  // among the reaper's; not ours any more once stopped
  timeout_handler* handler_;
  socket_view socket_;
  std::uint32_t unread_ = 0;       // what waited in the kernel at the last look
  std::uint32_t ping_behind_ = 0;  // bytes queued before the ping and not taken yet
  std::uint32_t written_ = 0;      // since the last look; saturates. Else see note_untold_writes()
  heard heard_ = heard::never;
  bool reads_move_ : 1 = false;
  bool stopped_ : 1 = false;
  bool asking_ : 1 = false;       // the handler is running
  bool pinging_ : 1 = false;      // in on_ping_due()
  bool told_writes_ : 1 = false;  // by on_write()
  bool looked_half_ : 1 = false;  // at half of write_stall
  bool age_warned_ : 1 = false;
  bool counted_ : 1 = false;  // as closed, and lingering
  phase phase_ : 3;
  pause pause_ : 2 = pause::none;
  bool has_turn_ : 1 = false;  // to close, when closes are limited
  bool told_dry_ : 1 = false;  // what would close it
  std::uint8_t missed_ = 0;    // pings unanswered before the last one

  detail::compact_instant in_since_;  // min_rate_in's credit runs out a grace after this
  detail::compact_instant born_;
  detail::compact_instant last_delivery_;  // when the peer was last seen to take something
  detail::compact_instant last_message_;
  detail::compact_instant phase_since_;
  detail::compact_instant request_since_;
  detail::compact_instant last_write_;
  detail::compact_instant ping_at_;       // when the last ping's clock began
  detail::compact_instant out_since_;     // min_rate_out's, likewise; the queue began to fill then
  detail::compact_instant paused_since_;  // with pause::ours
  detail::compact_instant no_verdict_before_;  // an extension

  detail::compact_count outstanding_;  // bytes written and not known to be taken
};

static_assert(sizeof(connection_timeouts) <= 192);

}  // namespace idlewheel
