// socket_view.hpp - which socket a connection has, and what a last look at it found.
//
// What   socket_view names a socket without owning it; socket_look is the answer to "is it really
//        silent?", asked once before a connection is closed and never per read.
// Not    A way to read or write. Nothing here includes <uv.h>: the rooms that decide about a
//        connection run on any host.
#pragma once
#include <cstdint>
#include <optional>

#include "idlewheel/wheel/timespan.hpp"

struct uv_stream_s;  // uv_stream_t

namespace idlewheel {

class socket_view {
 public:
  // No socket to look at: every answer is "unknown".
  socket_view() noexcept = default;

  // A libuv TCP or pipe handle. It must outlive the view's user, or that user's stop().
  explicit socket_view(const uv_stream_s* stream) noexcept
      : value_{reinterpret_cast<std::uintptr_t>(stream)} {}

  // A descriptor, for example one that uv_poll_t watches. A negative one is none.
  static socket_view descriptor(int fd) noexcept {
    socket_view view;
    if (fd >= 0) view.value_ = static_cast<std::uintptr_t>(fd) << 1 | 1;
    return view;
  }

  // Null, or negative, when it is not one of those.
  const uv_stream_s* stream() const noexcept {
    return (value_ & 1) == 0 ? reinterpret_cast<const uv_stream_s*>(value_) : nullptr;
  }
  int fd() const noexcept { return (value_ & 1) != 0 ? static_cast<int>(value_ >> 1) : -1; }

 private:
  // Eight bytes, since every connection has one: handles are aligned, so that the lowest bit can
  // say that the rest is a descriptor.
  std::uintptr_t value_ = 0;
};

// What the kernel knows. A field is empty where it cannot say.
struct socket_look {
  std::optional<std::uint64_t> unread{};   // bytes that arrived and that we have not read
  std::optional<std::uint64_t> unsent{};   // bytes written that the peer has not acknowledged
  std::optional<instant> last_arrival{};   // when data last came in; never before it really did
  std::optional<instant> last_delivery{};  // when the peer last acknowledged; likewise
  std::optional<std::uint64_t> acknowledged{};  // bytes, since the connection began
};

}  // namespace idlewheel
