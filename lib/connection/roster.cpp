#include "idlewheel/connection/detail/roster.hpp"

#include <memory>

namespace idlewheel::detail {

roster::~roster() {
  for (page* const p : pages_) delete p;
}

roster::place* roster::add(connection_timeouts& who) {
  if (free_ == nullptr) grow();
  place* const taken = free_;
  free_ = reinterpret_cast<place*>(taken->value_ & ~std::uintptr_t{1});
  taken->value_ = reinterpret_cast<std::uintptr_t>(&who);
  ++size_;
  return taken;
}

void roster::remove(place* of) noexcept {
  of->value_ = reinterpret_cast<std::uintptr_t>(free_) | 1;
  free_ = of;
  --size_;
}

void roster::grow() {
  auto made = std::make_unique<page>();
  made->reaper = reaper_;
  made->host = host_;
  pages_.push_back(made.get());
  // The first place is the first to be taken.
  for (std::size_t i = places_per_page; i-- > 0;) {
    made->places[i].value_ = reinterpret_cast<std::uintptr_t>(free_) | 1;
    free_ = &made->places[i];
  }
  made.release();
}

}  // namespace idlewheel::detail
