#include "idlewheel/connection/connection_reaper.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "idlewheel/connection/connection_timeouts.hpp"

namespace idlewheel {
namespace {

void want_not_negative(const char* field, timespan value) {
  if (value < timespan{})
    throw std::invalid_argument(std::string{"idlewheel: drain_options::"} + field +
                                " is 0 or more, not " + std::to_string(value.count_ns()) + " ns");
}

timespan scaled(timespan length, double factor) noexcept {
  const double ns = static_cast<double>(length.count_ns()) * factor;
  if (ns >= static_cast<double>(timespan::max().count_ns())) return timespan::max();
  return std::chrono::nanoseconds{static_cast<std::int64_t>(std::ceil(ns))};
}

}  // namespace

connection_reaper::connection_reaper(timer_host& host, const reaper_options& options)
    : host_{&host}, options_{options}, all_{*this, host} {
  if (!(options.jitter >= 0 && options.jitter <= 1))
    throw std::invalid_argument("idlewheel: reaper_options::jitter is 0 to 1, not " +
                                std::to_string(options.jitter));
}

connection_reaper::~connection_reaper() {
  if (gone_ != nullptr) *gone_ = true;
}

std::uint64_t connection_reaper::closed() const noexcept {
  return std::accumulate(closed_.begin(), closed_.end(), std::uint64_t{0});
}

// Eviction.

// By how long it has been idle; no two are equal.
struct connection_reaper::candidate {
  instant idle_since;
  detail::roster::place* at;
  connection_timeouts* who;
  bool operator<(const candidate& other) const noexcept {
    return idle_since != other.idle_since ? idle_since < other.idle_since
                                          : std::less<>{}(at, other.at);
  }
};

// The longest idle ones that come after `after`, in their order.
void connection_reaper::choose(std::vector<candidate>& chosen, std::size_t most, instant latest,
                               const std::optional<candidate>& after) {
  detail::roster::cursor from_the_first;
  all_.walk(from_the_first, ~std::size_t{0},
            [&](connection_timeouts& who, detail::roster::place* at) {
              const candidate c{who.idle_since(), at, &who};
              if (c.idle_since > latest || who.in_flight() || (after && !(*after < c))) return;
              // A heap, the least idle on top.
              if (chosen.size() == most) {
                if (!(c < chosen.front())) return;
                std::pop_heap(chosen.begin(), chosen.end());
                chosen.pop_back();
              }
              chosen.push_back(c);
              std::push_heap(chosen.begin(), chosen.end());
            });
  std::sort_heap(chosen.begin(), chosen.end());
}

std::size_t connection_reaper::evict(std::size_t n, timespan min_idle) {
  if (ended_ != nullptr) return 0;
  const instant latest = later(host_->now(), -std::chrono::nanoseconds{min_idle});
  const std::size_t most = std::min(std::max(n, least_chosen), all_.size());
  std::vector<candidate> chosen;
  chosen.reserve(most);
  std::size_t evicted = 0;
  bool gone = false;
  gone_ = &gone;
  // Some turn out to be busy when their sockets are asked; then the next ones are chosen.
  for (std::optional<candidate> after; evicted < n; after = chosen.back()) {
    chosen.clear();
    choose(chosen, most, latest, after);
    if (chosen.empty()) break;
    for (const candidate& c : chosen) {
      if (evicted == n) break;
      // A handler before this one may have ended it, and another may live in its place.
      if (c.at->who() != c.who || c.who->in_flight() || c.who->idle_since() > latest) continue;
      if (c.who->leave(expiry_reason::evicted)) ++evicted;
      if (gone) return evicted;
    }
  }
  gone_ = nullptr;
  return evicted;
}

// Walks.

void connection_reaper::walk_again() noexcept {
  walked_ = {};
  walking_ = true;
  host_->arm(step_, timespan{});
}

void connection_reaper::on_step() noexcept {
  if (walking_)
    walking_ = all_.walk(walked_, walk_step, [](connection_timeouts& who, detail::roster::place*) {
      who.work_out_anew();
    });
  if (walking_) {
    host_->arm(step_, timespan{});
  } else if (draining_ && drained_) {
    if (all_.size() == 0 || (dry_run_ && host_->judged_at() >= drain_ends())) {
      const auto done = std::exchange(drained_, nullptr);
      return done();  // this may be gone
    }
    if (host_->judged_at() < drain_ends()) host_->arm_at(step_, drain_ends());
  }
}

void connection_reaper::forget(detail::roster::place* of) noexcept {
  all_.remove(of);
  if (draining_ && drained_ && all_.size() == 0) host_->arm(step_, timespan{});
}

// Pressure.

void connection_reaper::set_pressure(double pressure) noexcept {
  pressure = pressure > 0 ? std::min(pressure, 1.0) : 0;
  if (std::exchange(pressure_, pressure) != pressure) walk_again();
}

timespan connection_reaper::idle_limit(timespan own, timespan least, double spread) const noexcept {
  if (own <= timespan{}) return own;
  if (pressure_ > 0 && least > timespan{} && least < own)
    own = std::chrono::nanoseconds{least} +
          std::chrono::nanoseconds{scaled(
              std::chrono::nanoseconds{own} - std::chrono::nanoseconds{least}, 1 - pressure_)};
  if (options_.jitter > 0) own = scaled(own, 1 + options_.jitter * spread);
  return own;
}

instant connection_reaper::next_close(instant now) noexcept {
  if (options_.closes_per_second == 0) return now;
  const instant turn = std::max(next_close_, now);
  next_close_ = turn + std::chrono::nanoseconds{1'000'000'000 / options_.closes_per_second};
  return turn;
}

// Draining.

bool connection_reaper::begin_drain(const drain_options& options, std::function<void()> done) {
  want_not_negative("window", options.window);
  want_not_negative("grace", options.grace);
  want_not_negative("hard", options.hard);
  if (draining_) return false;
  draining_ = true;
  drain_ = options;
  drain_since_ = host_->now();
  drained_ = std::move(done);
  walk_again();
  return true;
}

instant connection_reaper::leaves_at(double spread) const noexcept {
  return later(drain_since_, scaled(drain_.window, spread));
}
instant connection_reaper::grace_ends() const noexcept {
  return later(later(drain_since_, drain_.window), drain_.grace);
}
instant connection_reaper::drain_ends() const noexcept { return later(grace_ends(), drain_.hard); }

void connection_reaper::set_dry_run(bool on) noexcept {
  if (std::exchange(dry_run_, on) != on) walk_again();
}

}  // namespace idlewheel
