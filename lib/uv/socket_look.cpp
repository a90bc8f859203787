#include "idlewheel/uv/socket_look.hpp"

#include <uv.h>

#ifdef __linux__
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#endif
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstddef>
#include <ctime>

namespace idlewheel {
namespace {

std::optional<int> descriptor_of(const socket_view& socket) noexcept {
  if (socket.fd() >= 0) return socket.fd();
  if (socket.stream() == nullptr) return std::nullopt;
  const auto* handle = reinterpret_cast<const uv_handle_t*>(socket.stream());
  uv_os_fd_t fd = -1;
  if (uv_is_closing(handle) || uv_fileno(handle, &fd) != 0) return std::nullopt;
  return fd;
}

#ifdef __linux__
// The kernel's tcp_info goes on where the C library's ends; <linux/tcp.h> cannot stand beside
// <uv.h>.
struct longer_tcp_info {
  tcp_info begin;
  std::uint64_t pacing_rate;
  std::uint64_t max_pacing_rate;
  std::uint64_t bytes_acked;
};
static_assert(offsetof(longer_tcp_info, bytes_acked) == 120);

// The kernel stamps arrivals in jiffies; a difference of two stamps is off by one at most.
std::chrono::nanoseconds jiffy() noexcept {
  static const std::chrono::nanoseconds length = [] {
    timespec resolution{};
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &resolution) != 0) resolution.tv_nsec = 10'000'000;
    return std::chrono::seconds{resolution.tv_sec} + std::chrono::nanoseconds{resolution.tv_nsec};
  }();
  return length;
}

instant ago(instant now, std::uint32_t ms) noexcept {
  const std::chrono::nanoseconds passed = std::chrono::milliseconds{ms} - jiffy();
  return passed.count() <= 0 ? now : now - passed;
}
#endif

}  // namespace

socket_look look_at_socket(const socket_view& socket) noexcept {
  socket_look seen;
  const auto fd = descriptor_of(socket);
  if (!fd) return seen;

  int bytes = 0;
  if (ioctl(*fd, FIONREAD, &bytes) == 0 && bytes >= 0)
    seen.unread = static_cast<std::uint64_t>(bytes);

#ifdef __linux__
  const std::uint64_t queued =
      socket.stream() != nullptr ? uv_stream_get_write_queue_size(socket.stream()) : 0;
  if (ioctl(*fd, SIOCOUTQ, &bytes) == 0 && bytes >= 0)
    seen.unsent = queued + static_cast<std::uint64_t>(bytes);

  longer_tcp_info longer{};
  const tcp_info& info = longer.begin;
  socklen_t size = sizeof longer;
  if (getsockopt(*fd, IPPROTO_TCP, TCP_INFO, &longer, &size) == 0 && info.tcpi_state != TCP_CLOSE) {
    // Read after the call: its answer is an age at that moment, which may be long after this
    // function began.
    const instant now{std::chrono::nanoseconds{static_cast<std::int64_t>(uv_hrtime())}};
    seen.last_arrival = ago(now, info.tcpi_last_data_recv);
    seen.last_delivery = ago(now, info.tcpi_last_ack_recv);
    if (size >= sizeof longer) seen.acknowledged = longer.bytes_acked;
  }
#endif
  return seen;
}

}  // namespace idlewheel
