// roster.hpp - all connections of one reaper, each in a place that does not move.
//
// Pages of places, so that a connection needs one pointer for both its place and, by rounding it down,
// its page, which knows the reaper and the host. A place found once stays valid while others come and
// go, so a walk can stop anywhere and go on later. Pages are kept for the next crowd: 8 bytes for each
// connection of the largest one.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace idlewheel {

class connection_timeouts;
class connection_reaper;
class timer_host;

namespace detail {

class roster {
 public:
  // Holds a connection, or when it is free the next free place, marked by the lowest bit.
  class place {
   public:
    connection_timeouts* who() const noexcept {
      return (value_ & 1) != 0 ? nullptr : reinterpret_cast<connection_timeouts*>(value_);
    }

   private:
    friend class roster;
    std::uintptr_t value_ = 1;
  };

  // Where a walk stands; one that is new begins.
  class cursor {
    friend class roster;
    std::size_t page_ = 0;
    std::size_t index_ = 0;
  };

  roster(connection_reaper& reaper, timer_host& host) noexcept : reaper_{&reaper}, host_{&host} {}
  roster(const roster&) = delete;
  roster& operator=(const roster&) = delete;
  ~roster();

  // O(1); every 510th of a growing crowd allocates a page. Throws std::bad_alloc.
  place* add(connection_timeouts& who);
  void remove(place* of) noexcept;  // O(1)
  std::size_t size() const noexcept { return size_; }

  static connection_reaper& reaper_of(const place* of) noexcept { return *page_of(of)->reaper; }
  static timer_host& host_of(const place* of) noexcept { return *page_of(of)->host; }

  // Calls visit(connection_timeouts&, place*) for the next `most` places, the empty ones counted.
  // Returns false once the end has been reached. Who stayed throughout a walk is met once; who came
  // during it may be met. `visit` may add and remove.
  template <class Visit>
  bool walk(cursor& at, std::size_t most, Visit visit) {
    for (; at.page_ < pages_.size(); ++at.page_, at.index_ = 0)
      for (; at.index_ < places_per_page; ++at.index_) {
        if (most-- == 0) return true;
        place& p = pages_[at.page_]->places[at.index_];
        if (connection_timeouts* const who = p.who()) visit(*who, &p);
      }
    return false;
  }

 private:
  static constexpr std::size_t page_size = 4096;
  static constexpr std::size_t places_per_page = (page_size - 2 * sizeof(void*)) / sizeof(place);
  struct alignas(page_size) page {
    connection_reaper* reaper;
    timer_host* host;
    std::array<place, places_per_page> places;
  };
  static_assert(sizeof(page) == page_size);

  static page* page_of(const place* p) noexcept {
    return reinterpret_cast<page*>(reinterpret_cast<std::uintptr_t>(p) & ~(page_size - 1));
  }
  void grow();

  connection_reaper* reaper_;
  timer_host* host_;
  place* free_ = nullptr;
  std::vector<page*> pages_;
  std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace idlewheel
