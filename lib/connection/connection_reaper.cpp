#include "idlewheel/connection/connection_reaper.hpp"

#include <numeric>

namespace idlewheel {

std::uint64_t connection_reaper::closed() const noexcept {
  return std::accumulate(closed_.begin(), closed_.end(), std::uint64_t{0});
}

}  // namespace idlewheel
