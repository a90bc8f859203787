#include "idlewheel/connection/connection_timeouts.hpp"

#include <algorithm>

namespace idlewheel {

const char* name_of(expiry_reason reason) noexcept {
  switch (reason) {
    case expiry_reason::idle:
      return "idle";
    case expiry_reason::read_idle:
      return "read_idle";
  }
  return "?";
}

connection_timeouts::connection_timeouts(timer_host& host, const timeout_policy& policy,
                                         socket_view socket, timeout_handler& handler) noexcept
    : last_read_{host.now()},
      host_{&host},
      policy_{&policy},
      handler_{&handler},
      socket_{socket},
      last_delivery_{last_read_},
      no_verdict_before_{last_read_} {
  arm_soonest();
}

connection_timeouts::~connection_timeouts() {
  if (destroyed_ != nullptr) *destroyed_ = true;
}

void connection_timeouts::set_policy(const timeout_policy& policy) noexcept {
  policy_ = &policy;
  arm_soonest();
}

void connection_timeouts::stop() noexcept {
  stopped_ = true;
  timer_.cancel();
}

instant connection_timeouts::last_activity() const noexcept {
  return std::max(last_read_, last_delivery_);
}

// The stamps settle here what a read did not have to find out.
std::optional<connection_timeouts::limit> connection_timeouts::soonest() const noexcept {
  const instant read = host_->latest(last_read_);
  std::optional<limit> first;
  const auto consider = [&](expiry_reason reason, timespan length, instant since) {
    if (length <= timespan{}) return;  // off
    const instant due = later(since, length);
    if (!first || due < first->due) first = limit{reason, since, due};
  };
  consider(expiry_reason::idle, policy_->idle, std::max(read, last_delivery_));
  consider(expiry_reason::read_idle, policy_->read_idle, read);
  return first;
}

void connection_timeouts::arm_soonest() noexcept {
  if (stopped_) return;
  const auto next = soonest();
  if (!next || host_->closed()) {
    timer_.cancel();
    return;
  }
  timespan moved_by_reads = timer::max_timeout;
  for (const timespan length : {policy_->idle, policy_->read_idle})
    if (length > timespan{}) moved_by_reads = std::min(moved_by_reads, length);
  const instant due = std::max(next->due, no_verdict_before_);
  host_->arm_since(timer_, later(due, -std::chrono::nanoseconds{moved_by_reads}), moved_by_reads);
}

void connection_timeouts::on_timer() noexcept {
  const instant now = host_->judged_at();
  const auto unripe = [&](const std::optional<limit>& l) {
    return !l || l->due > now || no_verdict_before_ > now;
  };
  if (unripe(soonest())) return arm_soonest();
  look_again();
  const auto out = soonest();
  if (unripe(out)) return arm_soonest();

  bool destroyed = false;
  destroyed_ = &destroyed;
  const verdict answer =
      handler_->on_timeout({.reason = out->reason, .since = out->since, .due = out->due});
  if (destroyed) return;
  destroyed_ = nullptr;
  if (stopped_) return;  // by the handler; the host may be gone
  if (const auto extension = answer.extension()) {
    no_verdict_before_ = later(host_->now(), *extension);
    arm_soonest();
  } else {
    stop();
  }
}

// What the kernel knows and we were not told. A socket that says nothing changes nothing.
void connection_timeouts::look_again() noexcept {
  const socket_look seen = host_->look(socket_);
  const instant now = host_->now();  // what is undated may be as recent as this
  // The next poll will report what is unread, unless we do not listen: then old bytes are old.
  const std::uint64_t unread = seen.unread.value_or(0);
  if (unread != 0 && !paused_)
    last_read_ = std::max(last_read_, now);
  else if (unread != 0 && (seen.last_arrival || unread != unread_))
    last_read_ = std::max(last_read_, seen.last_arrival.value_or(now));
  unread_ = unread;
  if (seen.unsent && queued_ != delivered_ && *seen.unsent <= queued_) {
    const std::uint64_t taken = queued_ - *seen.unsent;
    if (taken > delivered_) {
      delivered_ = taken;
      last_delivery_ = std::max(last_delivery_, seen.last_delivery.value_or(now));
    }
  }
}

}  // namespace idlewheel
