#include "server.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace example {

std::string to_string(const sockaddr_storage& address) {
  char host[64] = "?";
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    uv_ip6_name(&v6, host, sizeof host);
    return fmt::format("[{}]:{}", host, ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  uv_ip4_name(&v4, host, sizeof host);
  return fmt::format("{}:{}", host, ntohs(v4.sin_port));
}

server::server(uv_loop_t* loop, const std::string& program, const server_options& wanted,
               const factory& make, lane which)
    : loop_{loop},
      options_{wanted},
      make_{make},
      lane_{which},
      wheel_{loop, {.tick = wanted.tick, .slots = wanted.slots, .refresh = wanted.refresh}},
      journal_{program, wanted.log, wanted.quiet},
      next_id_{which.index + 1} {
  reaper_.set_dry_run(wanted.dry_run);
  uv_tcp_init_ex(loop_, &listener_, static_cast<unsigned>(wanted.address.ss_family));
  uv_prepare_init(loop_, &before_poll_);
  for (uv_timer_t* timer : {&every_second_, &try_again_, &lame_duck_}) {
    uv_timer_init(loop_, timer);
    timer->data = this;
  }
  listener_.data = before_poll_.data = this;
}

int server::listen(const sockaddr_storage& address) {
  uv_os_fd_t fd = -1;
  const int on = 1;
  // Several listeners on one port: the kernel shares the connections out, nothing else is shared.
  if (lane_.of > 1 && uv_fileno(as_handle(listener_), &fd) == 0)
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  if (const int status = uv_tcp_bind(&listener_, reinterpret_cast<const sockaddr*>(&address), 0);
      status < 0)
    return status;
  const int status = uv_listen(reinterpret_cast<uv_stream_t*>(&listener_), 1024,
                               [](uv_stream_t* stream, int result) {
                                 static_cast<server*>(stream->data)->on_connection(result);
                               });
  if (status < 0) return status;

  uv_prepare_start(&before_poll_, [](uv_prepare_t* handle) {
    static_cast<server*>(handle->data)->journal_.flush();
  });
  // A terminal has one line to keep up to date.
  if (journal_.live() && lane_.index == 0)
    uv_timer_start(
        &every_second_,
        [](uv_timer_t* handle) { static_cast<server*>(handle->data)->show_status(); }, 1000, 1000);
  return 0;
}

sockaddr_storage server::address() const {
  sockaddr_storage bound{};
  int length = sizeof bound;
  uv_tcp_getsockname(&listener_, reinterpret_cast<sockaddr*>(&bound), &length);
  return bound;
}

// Accepting -------------------------------------------------------------------------------------------

bool server::once_a_second(std::uint64_t& told_ms) const {
  if (told_ms != 0 && uv_now(loop_) - told_ms < 1000) return false;
  told_ms = std::max<std::uint64_t>(uv_now(loop_), 1);
  return true;
}

void server::on_connection(int status) {
  if (status < 0) {
    // The next one may find a descriptor free.
    if (status == UV_EMFILE || status == UV_ENFILE) make_room();
    if (once_a_second(problem_told_ms_))
      journal_.problem(fmt::format("cannot accept: {}", uv_strerror(status)));
    return;
  }
  if (full()) make_room();
  if (!full()) return accept_one();
  // Not accepting is enough: libuv then stops listening until we do, and the backlog fills.
  waiting_ = true;
  if (once_a_second(limit_told_ms_))
    journal_.problem(fmt::format("{} connections are open, the limit; more wait", limit_));
  uv_timer_start(
      &try_again_,
      [](uv_timer_t* handle) {
        auto* self = static_cast<server*>(handle->data);
        self->make_room();
        self->on_closed();
      },
      100, 100);
}

// In batches, so that not every connection accepted costs a look at all that are open.
void server::make_room() {
  const std::size_t evicted =
      reaper_.evict(std::clamp<std::size_t>(limit_ / 16, 1, 256), options_.evict_idle);
  if (evicted != 0 && once_a_second(limit_told_ms_))
    journal_.problem(fmt::format("{} connections are open, the limit; closed the {} longest idle",
                                 totals_.open + evicted, evicted));
}

void server::accept_one() {
  connection* const accepted = make_(*this, next_id_);
  next_id_ += lane_.of;
  if (const int status = uv_accept(reinterpret_cast<uv_stream_t*>(&listener_),
                                   reinterpret_cast<uv_stream_t*>(accepted->tcp()));
      status < 0) {
    journal_.problem(fmt::format("cannot accept: {}", uv_strerror(status)));
    uv_close(as_handle(*accepted->tcp()),
             [](uv_handle_t* handle) { delete static_cast<connection*>(handle->data); });
    return;
  }
  ++totals_.accepted;
  ++totals_.open;
  connections_.insert(accepted);
  press();
  accepted->start();
}

// Fewer places, less patience: from half of the limit on, idle limits shrink towards idle_min. In
// eighths, because each change is a walk over all connections.
void server::press() {
  const double used = static_cast<double>(totals_.open) / static_cast<double>(limit_);
  const double wanted = std::clamp(std::floor((used - 0.5) * 16) / 8, 0.0, 1.0);
  if (wanted != reaper_.pressure()) reaper_.set_pressure(wanted);
}

// What connections tell -------------------------------------------------------------------------------

void server::on_opened(const connection& opened) { journal_.opened(opened.id(), opened.peer()); }

void server::on_closing(connection& ending, const closing& how) {
  connections_.erase(&ending);
  --totals_.open;
  ++totals_.closed[how.reason];
  if (how.late) totals_.latest_close = std::max(totals_.latest_close, *how.late);
  journal_.closed(ending.id(), ending.peer(), how);
  press();
}

void server::on_closed() {
  if (waiting_ && !full() && !stopping_) {
    waiting_ = false;
    uv_timer_stop(&try_again_);
    accept_one();
  }
  end_if_drained();
}

void server::on_would_close(const connection& who, const std::string& reason,
                            std::chrono::nanoseconds late) {
  ++totals_.would_close[reason];
  journal_.would_close(who.id(), who.peer(), reason, late);
}

uv_buf_t server::read_buffer() {
  return uv_buf_init(buffer_.data(), static_cast<unsigned>(buffer_.size()));
}

// The end ---------------------------------------------------------------------------------------------

void server::drain() {
  if (stopping_ || draining()) return;
  reaper_.begin_drain({.window = options_.drain_window, .grace = options_.drain_grace}, [this] {
    drained_ = true;
    end_if_drained();
  });
  // What the kernel has already completed is accepted before the listener closes.
  using std::chrono::milliseconds;
  const auto wait = std::max(std::chrono::ceil<milliseconds>(options_.lame_duck), milliseconds{10});
  uv_timer_start(
      &lame_duck_, [](uv_timer_t* handle) { static_cast<server*>(handle->data)->stop_accepting(); },
      static_cast<std::uint64_t>(wait.count()), 0);
}

void server::stop_accepting() {
  if (uv_is_closing(as_handle(listener_)) == 0) uv_close(as_handle(listener_), nullptr);
  waiting_ = false;
  end_if_drained();
}

void server::end_if_drained() {
  if (drained_ && totals_.open == 0 && uv_is_closing(as_handle(listener_)) != 0) shut_down();
}

void server::shut_down() {
  if (std::exchange(stopping_, true)) return;
  for (uv_handle_t* handle : {as_handle(listener_), as_handle(every_second_), as_handle(try_again_),
                              as_handle(lame_duck_)})
    if (uv_is_closing(handle) == 0) uv_close(handle, nullptr);
  for (connection* open : std::vector<connection*>(connections_.begin(), connections_.end()))
    open->close("shutdown");
  wheel_.close();
  uv_close(as_handle(before_poll_), nullptr);
  if (on_end) on_end();
}

totals server::all() const {
  totals all = totals_;
  all.relinks = wheel_.stats().relinked;
  return all;
}

void server::show_status() {
  journal_.status(totals_, static_cast<double>(totals_.refreshes - refreshes_shown_));
  refreshes_shown_ = totals_.refreshes;
}

}  // namespace example
