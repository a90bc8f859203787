#include "session.hpp"

#include <memory>
#include <utility>

#include "server.hpp"

namespace echo {

// What the kernel would not take at once, kept until it does.
struct session::pending_write {
  uv_write_t request;
  session* owner;
  std::size_t size;
  std::unique_ptr<char[]> data;
};

session::session(server& owner, std::uint64_t id)
    : owner_{owner},
      id_{id},
      timeouts_{owner.reaper(), owner.policy(), idlewheel::socket_view{stream()}, *this} {
  uv_tcp_init(owner.loop(), &tcp_);
  tcp_.data = this;
}

void session::start() {
  sockaddr_storage address{};
  int length = sizeof address;
  if (uv_tcp_getpeername(&tcp_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    peer_ = to_string(address);
  owner_.on_opened(*this);
  uv_tcp_nodelay(&tcp_, 1);
  listen_to_peer();
}

void session::listen_to_peer() {
  timeouts_.resume_reading();
  const int status = uv_read_start(
      stream(),
      [](uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
        *buffer = static_cast<session*>(handle->data)->owner_.read_buffer();
      },
      [](uv_stream_t* stream, ssize_t result, const uv_buf_t* buffer) {
        static_cast<session*>(stream->data)->on_read(result, buffer->base);
      });
  if (status < 0) fail(status);
}

void session::on_read(ssize_t result, const char* data) {
  if (result == 0) return;  // nothing after all; not activity
  if (result == UV_EOF) return close("peer closed");
  if (result < 0) return fail(static_cast<int>(result));
  const auto size = static_cast<std::size_t>(result);
  timeouts_.on_read(size);
  owner_.count_refresh();
  rx_ += size;
  echo(data, size);
}

void session::echo(const char* data, std::size_t size) {
  timeouts_.on_write(size);
  uv_buf_t buffer = uv_buf_init(const_cast<char*>(data), static_cast<unsigned>(size));
  const int sent = uv_try_write(stream(), &buffer, 1);
  if (sent < 0 && sent != UV_EAGAIN) return fail(sent);
  const std::size_t taken = sent > 0 ? static_cast<std::size_t>(sent) : 0;
  tx_ += taken;
  if (taken == size) return;

  // The peer reads more slowly than it writes. Listen again when it has caught up: so one read is
  // the most that we ever hold for it.
  uv_read_stop(stream());
  timeouts_.pause_reading();
  auto* write = new pending_write{.request = {},
                                  .owner = this,
                                  .size = size - taken,
                                  .data = std::make_unique<char[]>(size - taken)};
  std::copy(data + taken, data + size, write->data.get());
  write->request.data = write;
  buffer = uv_buf_init(write->data.get(), static_cast<unsigned>(write->size));
  const int status =
      uv_write(&write->request, stream(), &buffer, 1, [](uv_write_t* request, int result) {
        const std::unique_ptr<pending_write> done{static_cast<pending_write*>(request->data)};
        done->owner->on_written(result, done->size);
      });
  if (status < 0) {
    delete write;
    fail(status);
  }
}

void session::on_written(int status, std::size_t size) {
  if (uv_is_closing(handle())) return;
  if (status < 0) return fail(status);
  tx_ += size;
  listen_to_peer();
}

idlewheel::verdict session::on_timeout(const idlewheel::expiry& out) noexcept {
  close(idlewheel::name_of(out.reason), idlewheel::between(out.due, owner_.wheel().now()));
  return idlewheel::verdict::close();
}

void session::fail(int error) {
  if (error == UV_ECONNRESET || error == UV_EPIPE) return close("peer reset");
  close(std::string{"error "} + uv_strerror(error));
}

void session::close(std::string reason, std::optional<std::chrono::nanoseconds> late) {
  if (uv_is_closing(handle())) return;
  const std::chrono::nanoseconds silent =
      idlewheel::between(timeouts_.last_activity(), owner_.wheel().now());
  timeouts_.stop();
  owner_.on_closing(
      *this, {.reason = std::move(reason), .silent = silent, .late = late, .rx = rx_, .tx = tx_});
  uv_close(handle(), [](uv_handle_t* closed) {
    auto* self = static_cast<session*>(closed->data);
    server& owner = self->owner_;
    delete self;
    owner.on_closed();
  });
}

}  // namespace echo
