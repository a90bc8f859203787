#include "idlewheel/connection/connection_timeouts.hpp"

#include <limits>

namespace idlewheel {
namespace {

// How long n bytes take at that rate; in floating point, whose division is the cheaper one.
// Signed, because that is what the processor converts.
double seconds_for(std::uint64_t n, const transfer_rate& rate) noexcept {
  return static_cast<double>(static_cast<std::int64_t>(n)) /
         static_cast<double>(static_cast<std::int64_t>(rate.bytes_per_second));
}

// The same 0 to 1 for the same connection whenever it is asked: splitmix64's finalizer (Steele, Lea,
// Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
double mixed(std::uint64_t seed) noexcept {
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((seed ^ (seed >> 31)) >> 11) * 0x1p-53;
}

// The shorter one of those that are on.
timespan sooner(timespan a, timespan b) noexcept {
  if (a <= timespan{}) return b;
  return b <= timespan{} ? a : std::min(a, b);
}

std::uint32_t saturated(std::uint64_t n) noexcept {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(n, std::numeric_limits<std::uint32_t>::max()));
}

// How often a queue is looked at that keeps a connection from leaving.
constexpr std::chrono::milliseconds look_while_draining{100};

constexpr std::chrono::seconds wait_for_unread{1};  // in a drain

constexpr unsigned most_missed = 255;  // what validate() allows

constexpr std::uint32_t most_pings = 0xffff;  // bytes of pings that the peer has not taken yet

}  // namespace

// What runs at the moment: the soonest of it, and whether a read moves all of it.
struct connection_timeouts::schedule {
  due_act first;
  bool any = false;
  bool only_reads = true;
  timespan shortest = timer::max_timeout;

  void add(act what, expiry_reason reason, timespan length, instant since) noexcept {
    if (length <= timespan{}) return;  // off
    only_reads = false;
    take({.what = what, .reason = reason, .since = since, .due = later(since, length)});
  }
  void add_limit(expiry_reason reason, timespan length, instant since) noexcept {
    add(act::limit, reason, length, since);
  }
  void add_moved_by_reads(act what, expiry_reason reason, timespan length, instant since) noexcept {
    if (length <= timespan{}) return;
    shortest = std::min(shortest, length);
    take({.what = what, .reason = reason, .since = since, .due = later(since, length)});
  }
  void take(const due_act& next) noexcept {
    if (!any || next.due < first.due) first = next;
    any = true;
  }
};

connection_timeouts::connection_timeouts(connection_reaper& reaper, const timeout_policy& policy,
                                         socket_view socket, timeout_handler& handler, phase first)
    : last_read_{reaper.host().now()},
      policy_{&policy},
      place_{reaper.all_.add(*this)},
      handler_{&handler},
      socket_{socket},
      phase_{first},
      in_since_{last_read_},
      born_{last_read_},
      last_delivery_{last_read_},
      last_message_{last_read_},
      phase_since_{last_read_},
      request_since_{last_read_},
      last_write_{last_read_},
      no_verdict_before_{last_read_} {
  arm_soonest();
}

void connection_timeouts::stop() noexcept {
  if (stopped_) return;
  stopped_ = true;
  timer_.cancel();
  if (asking_) {
    asking_ = false;
    *reaper().ended_ = true;
    reaper().ended_ = nullptr;
  }
  reaper().forget(place_);
}

void connection_timeouts::set_policy(const timeout_policy& policy) noexcept {
  if (stopped_) return;
  const instant now = host().now();
  // What was not counted until now is not demanded for that time.
  if (policy.min_rate_in.bytes_per_second != policy_->min_rate_in.bytes_per_second) in_since_ = now;
  if (policy.min_rate_out.bytes_per_second != policy_->min_rate_out.bytes_per_second)
    out_since_ = std::max<instant>(out_since_, now);
  policy_ = &policy;
  looked_half_ = false;
  if (age_warned_ && ages_at() > now) age_warned_ = false;
  arm_soonest();
}

instant connection_timeouts::last_activity() const noexcept {
  return std::max<instant>(last_read_, last_delivery_);
}

// What the program tells.

void connection_timeouts::on_write(std::size_t n) noexcept {
  if (n == 0 || stopped_) return;
  const bool begins = outstanding_ == 0;
  // A ping that nothing waits before is not followed: that it is taken is no activity. Behind data
  // it is part of them, so that none of their progress is missed.
  if (begins && pinging_) {
    last_write_ = host().now();
    if (!told_writes_) written_ += saturated(n);
    return;
  }
  if (!told_writes_) {
    told_writes_ = true;
    written_ = 0;  // counted something else until now
  }
  outstanding_ = outstanding_ + n;
  if (!begins) {
    last_write_ = host().poll_time();
    written_ = saturated(written_ + std::uint64_t{n});
    return;
  }
  last_write_ = out_since_ = host().now();
  looked_half_ = false;
  // Both are looked at half way first.
  const transfer_rate& rate = policy_->min_rate_out;
  const timespan new_one =
      sooner(policy_->write_stall, rate.bytes_per_second != 0 ? rate.grace : timespan{});
  arm_within(std::chrono::nanoseconds{new_one.count_ns() / 2}, out_since_);
}

void connection_timeouts::on_message() noexcept {
  if (!stopped_) last_message_ = host().now();
}

void connection_timeouts::restart() noexcept {
  if (!stopped_) last_message_ = last_read_ = host().now();
}

void connection_timeouts::enter(phase next) noexcept {
  if (stopped_) return;
  const bool silence_begins = phase_ == phase::closing;
  const instant now = host().now();
  set_phase(next, now);
  if (silence_begins || reaper().draining_) return arm_soonest();
  arm_within(shortest_of_phase(), now);
}

// What has begun with this phase; 0: nothing. What else runs has run before.
timespan connection_timeouts::shortest_of_phase() const noexcept {
  const timeout_policy& p = *policy_;
  switch (phase_) {
    case phase::handshake:
      return p.handshake;
    case phase::header:
      return sooner(p.header, p.request);
    case phase::body:
      return sooner(sooner(p.body, p.request),
                    p.min_rate_in.bytes_per_second != 0 ? p.min_rate_in.grace : timespan{});
    case phase::keep_alive:
      return reaper().idle_limit(p.keep_alive, p.idle_min, 0);
    case phase::closing:
      return p.linger;
    case phase::handling:
    case phase::upgraded:
      break;
  }
  return {};
}

// A limit of this length begins now. Mostly the timer stands sooner, or is nothing that it need wait
// for; then the wheel, and all that runs besides, is left alone.
void connection_timeouts::arm_within(timespan length, instant now) noexcept {
  if (length <= timespan{}) return;
  if (!timer_.armed() || later(now, length) < host().due(timer_)) return arm_soonest();
  reads_move_ = false;
}

void connection_timeouts::set_phase(phase next, instant now) noexcept {
  const bool same_request = phase_ == phase::header && next == phase::body;
  if (!same_request) request_since_ = now;
  if (next == phase::upgraded) last_message_ = now;
  phase_ = next;
  phase_since_ = in_since_ = now;
}

void connection_timeouts::pause_reading(pause why) noexcept {
  if (stopped_ || why == pause_) return;
  resume_reading();
  pause_ = why;
  if (why == pause::ours) paused_since_ = host().now();
}

void connection_timeouts::resume_reading() noexcept {
  if (stopped_) return;
  unread_ = 0;
  if (pause_ == pause::ours) {
    settle_pause();
    pause_ = pause::none;
    arm_soonest();
  }
  pause_ = pause::none;
}

// The last stamp, with what its turn's stall says about it: the rest of this is over.
void connection_timeouts::settle_last_read() noexcept {
  const instant read = host().latest(last_read_);
  in_since_ = later(in_since_, between(last_read_, read));
  last_read_ = read;
}

void connection_timeouts::credit_in(std::size_t n) noexcept {
  in_since_ = in_since_.later_within(seconds_for(n, policy_->min_rate_in), last_read_);
}

// Our own pause: what the peer owes us stands still, for max_pause at most.

instant connection_timeouts::stood_still(instant since, timespan lasted) const noexcept {
  const instant paused = paused_since_;
  const timespan stood =
      policy_->max_pause > timespan{} ? std::min(policy_->max_pause, lasted) : lasted;
  return since <= paused ? later(since, stood) : std::max(since, later(paused, stood));
}

instant connection_timeouts::peers_clock(instant since) const noexcept {
  return pause_ == pause::ours ? stood_still(since, timespan::max()) : since;
}

// As peers_clock(), when the pause ends now.
void connection_timeouts::settle_pause() noexcept {
  const timespan lasted = between(paused_since_, host().now());
  const auto moved = [&](instant since) { return stood_still(since, lasted); };
  settle_last_read();
  last_read_ = moved(last_read_);
  last_message_ = moved(last_message_);
  request_since_ = moved(request_since_);
  in_since_ = moved(in_since_);
  ping_at_ = moved(ping_at_);
  if (phase_ <= phase::body) phase_since_ = moved(phase_since_);
}

// What is due.

// 0 to 1, this connection's own.
double connection_timeouts::spread() const noexcept {
  return mixed(reinterpret_cast<std::uintptr_t>(this));
}

instant connection_timeouts::ages_at() const noexcept {
  const double less = static_cast<double>(policy_->max_age.count_ns()) *
                      std::clamp(policy_->age_jitter, 0.0, 1.0) * spread();
  return later(later(born_, policy_->max_age),
               -std::chrono::nanoseconds{static_cast<std::int64_t>(less)});
}

// The stamps settle here what a read did not have to find out.
connection_timeouts::schedule connection_timeouts::soonest() const noexcept {
  const timeout_policy& p = *policy_;
  schedule all;
  if (told_dry_ && reaper().dry_run_) return all;
  const auto idle_limit = [&](timespan own) {
    const connection_reaper& r = reaper();
    if (r.pressure_ == 0 && r.options_.jitter == 0) return own;
    return r.idle_limit(own, p.idle_min, spread());
  };
  const instant read = host().latest(last_read_);
  const timespan late = between(last_read_, read);
  const instant delivery = last_delivery_;
  bool silence = true;

  switch (phase_) {
    case phase::handshake:
      all.add_limit(expiry_reason::handshake, p.handshake, peers_clock(phase_since_));
      break;
    case phase::header:
      all.add_limit(expiry_reason::header, p.header, peers_clock(phase_since_));
      all.add_limit(expiry_reason::request, p.request, peers_clock(request_since_));
      break;
    case phase::body:
      all.add_limit(expiry_reason::body, p.body, peers_clock(phase_since_));
      all.add_limit(expiry_reason::request, p.request, peers_clock(request_since_));
      if (p.min_rate_in.bytes_per_second != 0)
        all.add_limit(expiry_reason::rate_in, p.min_rate_in.grace,
                      peers_clock(later(in_since_, late)));
      break;
    case phase::keep_alive:
      all.add_limit(expiry_reason::keep_alive, idle_limit(p.keep_alive), phase_since_);
      break;
    case phase::closing:
      all.add_limit(expiry_reason::linger, p.linger, std::max<instant>(phase_since_, delivery));
      silence = p.linger <= timespan{};
      break;
    case phase::handling:
    case phase::upgraded:
      break;
  }

  if (silence) {
    // Who was told to linger, without a limit for it, has these anew.
    const instant at_least = counted_ ? instant{phase_since_} : instant::min();
    const instant heard_last = std::max(peers_clock(read), at_least);
    all.add_moved_by_reads(act::limit, expiry_reason::idle, idle_limit(p.idle),
                           std::max(heard_last, delivery));
    all.add_moved_by_reads(act::limit, expiry_reason::read_idle, idle_limit(p.read_idle),
                           heard_last);
    all.add_limit(expiry_reason::message_idle, idle_limit(p.message_idle),
                  std::max(peers_clock(last_message_), at_least));
    if (!pinged())
      all.add_moved_by_reads(act::ping, {}, p.ping_after, heard_last);
    else
      all.add_limit(expiry_reason::peer_dead, p.ping_timeout, peers_clock(ping_at_));
    all.add(act::keep_warm, {}, p.ping_after_send, last_write_);
  }

  if (outstanding_ != 0) {
    instant stands = std::max<instant>(out_since_, delivery);
    if (counted_) stands = std::max<instant>(stands, phase_since_);
    // Half way, so that progress without a date is dated half a limit too late at most.
    if (!looked_half_)
      all.add(act::look, {}, std::chrono::nanoseconds{p.write_stall.count_ns() / 2}, stands);
    all.add_limit(expiry_reason::write_stall, p.write_stall, stands);
    if (p.min_rate_out.bytes_per_second != 0 && !counted_) {
      if (!looked_half_)
        all.add(act::look, {}, std::chrono::nanoseconds{p.min_rate_out.grace.count_ns() / 2},
                out_since_);
      all.add_limit(expiry_reason::rate_out, p.min_rate_out.grace, out_since_);
    }
  }

  if (p.max_age > timespan{} && silence && !counted_) {
    const instant aged = ages_at();
    const bool warn = p.age_grace > timespan{} && !age_warned_;
    all.only_reads = false;
    all.take({.what = warn ? act::age_warning : act::limit,
              .reason = expiry_reason::max_age,
              .since = born_,
              .due = warn ? aged : later(aged, p.age_grace)});
  }
  if (reaper().draining_) add_drain(all);
  return all;
}

void connection_timeouts::add_drain(schedule& all) const noexcept {
  const connection_reaper& r = reaper();
  all.only_reads = false;
  all.take({.what = act::limit,
            .reason = expiry_reason::drain,
            .since = r.drain_since_,
            .due = counted_ || phase_ == phase::closing ? r.drain_ends()
                   : busy()                             ? r.grace_ends()
                                                        : r.leaves_at(spread())});
}

// An extension holds back all that is due, but no drain beyond its end.
instant connection_timeouts::judged_from(const due_act& next) const noexcept {
  instant held_back = no_verdict_before_;
  if (reaper().draining_) held_back = std::min(held_back, reaper().drain_ends());
  return std::max(next.due, held_back);
}

void connection_timeouts::arm_soonest() noexcept {
  if (!stopped_) arm(soonest());
}

void connection_timeouts::arm(const schedule& all) noexcept {
  timer_host& host = this->host();
  if (!all.any || host.closed()) {
    reads_move_ = all.only_reads;
    timer_.cancel();
    return;
  }
  instant due = judged_from(all.first);
  // The answer to a ping begins the wait for the next one, which may be over sooner than anything
  // else; a read only stamps it.
  if (pinged() && policy_->ping_after > timespan{})
    due = std::min(due, later(host.now(), policy_->ping_after));
  if (awaits_delivery()) due = std::min(due, later(host.now(), look_while_draining));
  // A timer that stands sooner stays: it finds nothing, and looks again. Most phases begin and end
  // without the wheel, so.
  const bool stays = timer_.armed() && host.due(timer_) <= due;
  reads_move_ = all.only_reads && (!stays || reads_move_);
  if (stays && !reads_move_) return;
  const timespan moved_by_reads = reads_move_ ? all.shortest : timespan{};
  host.arm_since(timer_, later(due, -std::chrono::nanoseconds{moved_by_reads}), moved_by_reads);
}

void connection_timeouts::on_timer() noexcept {
  const instant now = host().judged_at();
  // Most often nothing has run out: a read has only stamped.
  const schedule all = soonest();
  if (all.first.due > now) has_turn_ = false;
  if (judged_from(all.first) > now && !awaits_delivery()) return arm(all);
  const bool waiting = look_again();
  const due_act out = soonest().first;
  if (judged_from(out) > now) return arm_soonest();
  switch (out.what) {
    case act::limit:
      if (out.reason == expiry_reason::peer_dead &&
          missed_ + 1u < std::min(policy_->missed, most_missed)) {
        ++missed_;
        return send_ping();
      }
      if (waits_for_turn(out)) return arm_soonest();
      // What was sent before we asked to leave is read first; of who never stops, not for ever.
      if (out.reason == expiry_reason::drain && waiting && now < later(out.due, wait_for_unread)) {
        no_verdict_before_ = later(now, std::chrono::nanoseconds{1});
        return arm_soonest();
      }
      ask(out);
      return;
    case act::ping:
      missed_ = 0;
      return send_ping();
    case act::keep_warm:
      last_write_ = host().now();
      if (!ping()) return;
      break;
    case act::age_warning:
      age_warned_ = true;
      // The grace counts from here, however late this comes.
      born_ = later(born_, between(ages_at(), host().now()));
      if (!survives([this] { handler_->on_age_due(); })) return;
      break;
    case act::look:
      looked_half_ = true;
      break;
  }
  arm_soonest();
}

// What the kernel knows and we were not told. A socket that says nothing changes nothing.
bool connection_timeouts::look_again() noexcept {
  const socket_look seen = host().look(socket_);
  const instant now = host().now();  // what is undated may be as recent as this
  note_arrival(seen, now);
  if (told_writes_)
    note_told_writes(seen, now);
  else
    note_untold_writes(seen, now);
  const bool waiting = seen.unread.value_or(0) != 0 && pause_ == pause::none;
  if (phase_ == phase::keep_alive && (unread_ != 0 || outstanding_ != 0)) phase_since_ = now;
  return waiting;
}

void connection_timeouts::note_arrival(const socket_look& seen, instant now) noexcept {
  // The next poll will report what is unread, unless we do not listen: then old bytes are old.
  const std::uint64_t unread = seen.unread.value_or(0);
  instant arrival = last_read_;
  if (unread != 0 && pause_ == pause::none)
    arrival = now;
  else if (unread != 0 && (seen.last_arrival || static_cast<std::uint32_t>(unread) != unread_))
    arrival = seen.last_arrival.value_or(now);
  else if (!program_reads())
    arrival = seen.last_arrival.value_or(arrival);
  unread_ = static_cast<std::uint32_t>(unread);
  if (arrival <= last_read_) return;
  settle_last_read();
  last_read_ = std::max(last_read_, arrival);
  if (pinged() && arrival > instant{ping_at_})
    heard_ = program_reads() ? heard::since_ping : heard::never;
}

void connection_timeouts::note_told_writes(const socket_look& seen, instant now) noexcept {
  if (!seen.unsent) {
    outstanding_ = 0;  // whatever it is, nobody can say that it stands still
  } else if (outstanding_ != 0 && *seen.unsent <= outstanding_) {
    const std::uint64_t taken = outstanding_ - *seen.unsent;
    outstanding_ = *seen.unsent;
    if (taken != 0) note_taken(taken, seen.last_delivery.value_or(now));
    // All that was there at the last look is gone: the queue may have been empty since.
    if (*seen.unsent <= written_) out_since_ = now;
  }
  written_ = 0;
}

// Then written_ is what the peer is known to have acknowledged, modulo 2^32.
void connection_timeouts::note_untold_writes(const socket_look& seen, instant now) noexcept {
  if (!seen.acknowledged) return;
  const auto taken = static_cast<std::uint32_t>(*seen.acknowledged);
  if (written_ - taken <= most_pings) return;  // the same, or our pings are still on their way
  written_ = taken;
  note_taken(0, seen.last_delivery.value_or(now));
  if (pinged()) ping_at_ = std::max<instant>(ping_at_, last_delivery_);  // it may wait behind that
}

void connection_timeouts::note_taken(std::uint64_t bytes, instant when) noexcept {
  when = std::max<instant>(when, last_delivery_);
  last_delivery_ = when;
  looked_half_ = false;
  if (policy_->min_rate_out.bytes_per_second != 0)
    out_since_ = out_since_.later_within(seconds_for(bytes, policy_->min_rate_out), when);
  if (ping_behind_ != 0) {  // until the peer has the ping, moving towards it is not silence
    ping_behind_ -= saturated(std::min<std::uint64_t>(bytes, ping_behind_));
    ping_at_ = std::max<instant>(ping_at_, when);
  }
  if (phase_ == phase::keep_alive) phase_since_ = std::max<instant>(phase_since_, when);
}

// What the program is asked.

template <class F>
bool connection_timeouts::survives(F call) noexcept {
  bool ended = false;
  reaper().ended_ = &ended;
  asking_ = true;
  call();
  if (ended) return false;
  asking_ = false;
  reaper().ended_ = nullptr;
  return true;
}

void connection_timeouts::send_ping() noexcept {
  ping_at_ = host().now();
  ping_behind_ = saturated(outstanding_);
  heard_ = program_reads() ? heard::pinged : heard::pinged_never;
  if (ping()) arm_soonest();
}

bool connection_timeouts::ping() noexcept {
  ++reaper().pings_;
  pinging_ = true;
  if (!survives([this] { handler_->on_ping_due(); })) return false;
  pinging_ = false;
  return true;
}

// When closes are limited: takes a turn, and waits for it. What comes meanwhile is activity as ever.
bool connection_timeouts::waits_for_turn(const due_act& out) noexcept {
  const bool had_turn = has_turn_;
  has_turn_ = false;
  if (counted_ || had_turn || out.reason == expiry_reason::drain) return false;
  const instant now = host().now();
  const instant turn = reaper().next_close(now);
  if (turn <= now) return false;
  has_turn_ = true;
  no_verdict_before_ = turn;
  ++reaper().held_back_;
  return true;
}

bool connection_timeouts::ask(const due_act& out) noexcept {
  const expiry told{.reason = out.reason, .since = out.since, .due = out.due};
  const auto reason = static_cast<std::size_t>(out.reason);
  if (reaper().dry_run_) {
    told_dry_ = true;
    ++reaper().would_close_[reason];
    if (survives([&] { handler_->on_would_close(told); })) arm_soonest();
    return false;
  }
  std::uint64_t& closed = reaper().closed_[reason];
  closed += counted_ ? 0 : 1;
  verdict answer = verdict::close();
  if (!survives([&] { answer = handler_->on_timeout(told); })) return true;
  const bool for_good = reaper().draining_ && host().judged_at() >= reaper().drain_ends();
  if (const auto extension = answer.extension(); extension && !for_good) {
    closed -= counted_ ? 0 : 1;
    ++reaper().extended_;
    no_verdict_before_ = later(host().now(), *extension);
    arm_soonest();
    return false;
  }
  if (answer.lingers() && !counted_) {
    counted_ = true;
    set_phase(phase::closing, host().now());
    arm_soonest();
  } else {
    stop();
  }
  return true;
}

// For the reaper.

bool connection_timeouts::in_flight() const noexcept {
  return phase_ == phase::body || phase_ == phase::handling ||
         (phase_ == phase::header && program_reads()) || pause_ == pause::ours;
}

instant connection_timeouts::idle_since() const noexcept {
  return std::max<instant>(host().latest(last_read_), last_delivery_);
}

bool connection_timeouts::leave(expiry_reason why) noexcept {
  const instant idle = idle_since();
  if (look_again() || busy()) return false;
  return ask({.what = act::limit, .reason = why, .since = idle, .due = host().now()});
}

void connection_timeouts::work_out_anew() noexcept {
  if (!reaper().dry_run_) told_dry_ = false;
  arm_soonest();
}

bool connection_timeouts::awaits_delivery() const noexcept {
  return outstanding_ != 0 && reaper().draining_;
}

}  // namespace idlewheel
