#include "connection.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "idlewheel/uv/stream_close.hpp"
#include "server.hpp"

namespace example {

// What the kernel would not take at once, kept until it does.
struct connection::pending_write {
  uv_write_t request;
  connection* owner;
  std::size_t size;
  std::unique_ptr<char[]> data;
};

connection::connection(server& owner, std::uint64_t id, const idlewheel::timeout_policy& policy,
                       idlewheel::phase first)
    : owner_{owner},
      id_{id},
      timeouts_{owner.reaper(), policy, idlewheel::socket_view{stream()}, *this, first} {
  uv_tcp_init(owner.loop(), &tcp_);
  tcp_.data = this;
}

void connection::start() {
  sockaddr_storage address{};
  int length = sizeof address;
  if (uv_tcp_getpeername(&tcp_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    peer_ = to_string(address);
  owner_.on_opened(*this);
  uv_tcp_nodelay(&tcp_, 1);
  // What one peer may make us put into the kernel, in one turn of the loop and altogether.
  int most_unsent = 256 * 1024;
  uv_send_buffer_size(reinterpret_cast<uv_handle_t*>(&tcp_), &most_unsent);
  resume_reading();
}

void connection::stop_reading(idlewheel::pause why) {
  may_read_ = false;
  timeouts_.pause_reading(why);
  if (std::exchange(reading_, false)) uv_read_stop(stream());
}

void connection::resume_reading() {
  may_read_ = true;
  if (sending_ || reading_ || closing()) return;
  timeouts_.resume_reading();
  reading_ = true;
  const int status = uv_read_start(
      stream(),
      [](uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
        *buffer = static_cast<connection*>(handle->data)->owner_.read_buffer();
      },
      [](uv_stream_t* stream, ssize_t result, const uv_buf_t* buffer) {
        static_cast<connection*>(stream->data)->on_read(result, buffer->base);
      });
  if (status < 0) fail(status);
}

void connection::on_read(ssize_t result, const char* data) {
  if (result == 0) return;  // nothing after all; not activity
  if (result == UV_EOF) return close("peer closed");
  if (result < 0) return fail(static_cast<int>(result));
  const auto size = static_cast<std::size_t>(result);
  timeouts_.on_read(size);
  if (goodbye_) return;
  owner_.count_refresh();
  rx_ += size;
  on_bytes(data, size);
}

void connection::send(std::string_view data) {
  timeouts_.on_write(data.size());
  uv_buf_t buffer = uv_buf_init(const_cast<char*>(data.data()), static_cast<unsigned>(data.size()));
  const int sent = uv_try_write(stream(), &buffer, 1);
  if (sent < 0 && sent != UV_EAGAIN) return fail(sent);
  const std::size_t taken = sent > 0 ? static_cast<std::size_t>(sent) : 0;
  tx_ += taken;
  if (taken == data.size()) return;

  // The peer reads more slowly than we write. Listen again when it has caught up: so one write is
  // the most that we ever hold for it.
  sending_ = true;
  if (std::exchange(reading_, false)) uv_read_stop(stream());
  timeouts_.pause_reading(idlewheel::pause::peer);  // also when it was ours
  data.remove_prefix(taken);
  auto* write = new pending_write{.request = {},
                                  .owner = this,
                                  .size = data.size(),
                                  .data = std::make_unique<char[]>(data.size())};
  std::copy(data.begin(), data.end(), write->data.get());
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

void connection::on_written(int status, std::size_t size) {
  if (closing()) return;
  if (status < 0) return fail(status);
  tx_ += size;
  sending_ = false;
  on_drained();
  if (may_read_) resume_reading();
}

void connection::say_goodbye() {
  if (closing() || std::exchange(goodbye_, true)) return;
  if (idlewheel::half_close(stream()) != 0) return close("peer closed");
  timeouts_.enter(idlewheel::phase::closing);
}

std::chrono::nanoseconds connection::lateness(const idlewheel::expiry& out) {
  return idlewheel::between(out.due, owner_.wheel().now());
}

idlewheel::verdict connection::on_timeout(const idlewheel::expiry& out) noexcept {
  using idlewheel::expiry_reason;
  if (out.reason == expiry_reason::drain && !sending_ && !goodbye_) {
    decide(idlewheel::name_of(out.reason), lateness(out));
    on_drain();
    return closing() ? idlewheel::verdict::close() : idlewheel::verdict::linger();
  }
  reset_ = out.reason == expiry_reason::write_stall || out.reason == expiry_reason::rate_out ||
           out.reason == expiry_reason::peer_dead;
  close(idlewheel::name_of(out.reason), lateness(out));
  return idlewheel::verdict::close();
}

void connection::on_would_close(const idlewheel::expiry& out) noexcept {
  owner_.on_would_close(*this, idlewheel::name_of(out.reason), lateness(out));
}

void connection::fail(int error) {
  if (error == UV_ECONNRESET || error == UV_EPIPE) return close("peer reset");
  close(std::string{"error "} + uv_strerror(error));
}

void connection::decide(std::string reason, std::optional<std::chrono::nanoseconds> late) {
  if (!reason_.empty()) return;
  reason_ = std::move(reason);
  late_ = late;
}

void connection::close(std::string reason, std::optional<std::chrono::nanoseconds> late) {
  if (closing()) return;
  decide(std::move(reason), late);
  // A stamp of this very turn may lie a little ahead of a fresh clock read.
  const std::chrono::nanoseconds silent = std::max<idlewheel::timespan>(
      idlewheel::between(timeouts_.last_activity(), owner_.wheel().now()), {});
  timeouts_.stop();
  owner_.on_closing(*this,
                    {.reason = reason_, .silent = silent, .late = late_, .rx = rx_, .tx = tx_});
  const auto closed = [](uv_handle_t* handle) {
    auto* self = static_cast<connection*>(handle->data);
    server& owner = self->owner_;
    delete self;
    owner.on_closed();
  };
  if (reset_)
    idlewheel::reset_stream(stream(), closed);
  else
    idlewheel::close_stream(stream(), closed);
}

}  // namespace example
