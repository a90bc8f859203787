#include "idlewheel/wheel/detail/overdue_queue.hpp"

#include <algorithm>
#include <bit>

namespace idlewheel::detail {

void overdue_queue::put(timer& t, tick deadline) noexcept {
  t.filed_ = deadline;
  file(t);
}

timer* overdue_queue::step() noexcept {
  if (buckets_[spreading_].empty()) {
    spreading_ = 0;
    while (buckets_[spreading_].empty()) ++spreading_;
    // All that is left differs from last_ in bit spreading_ - 1 or higher, and has that bit set
    // where last_ has not. Advancing last_ to the start of that range puts this bucket into lower
    // ones.
    if (spreading_ != 0) {
      const auto bit = static_cast<unsigned>(spreading_ - 1);
      last_ = static_cast<timer&>(*buckets_[spreading_].front()).filed_ >> bit << bit;
    }
  }
  timer& t = static_cast<timer&>(*buckets_[spreading_].front());
  if (spreading_ == 0) return &t;
  t.unlink();
  file(t);
  return nullptr;
}

// By filed_, not by the deadline: a refresh may have moved that meanwhile.
void overdue_queue::file(timer& t) noexcept {
  buckets_[static_cast<std::size_t>(std::bit_width(t.filed_ ^ last_))].push_back(t);
}

bool overdue_queue::empty() const noexcept {
  return std::ranges::all_of(buckets_, [](const link& head) { return head.empty(); });
}

void overdue_queue::drain(link& to) noexcept {
  spreading_ = 0;
  for (link& head : buckets_) to.take_all(head);
}

}  // namespace idlewheel::detail
