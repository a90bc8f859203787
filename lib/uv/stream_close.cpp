#include "idlewheel/uv/stream_close.hpp"

#include <new>

namespace idlewheel {
namespace {

uv_handle_t* handle(uv_stream_t* stream) noexcept { return reinterpret_cast<uv_handle_t*>(stream); }

}  // namespace

int half_close(uv_stream_t* stream) noexcept {
  if (uv_is_closing(handle(stream))) return UV_ECANCELED;
  auto* request = new (std::nothrow) uv_shutdown_t;
  if (request == nullptr) return UV_ENOMEM;
  const int status = uv_shutdown(request, stream, [](uv_shutdown_t* done, int) { delete done; });
  if (status != 0) delete request;
  return status;
}

bool close_stream(uv_stream_t* stream, uv_close_cb closed) noexcept {
  if (uv_is_closing(handle(stream))) return false;
  uv_close(handle(stream), closed);
  return true;
}

bool reset_stream(uv_stream_t* stream, uv_close_cb closed) noexcept {
  if (uv_is_closing(handle(stream))) return false;
  if (stream->type != UV_TCP ||
      uv_tcp_close_reset(reinterpret_cast<uv_tcp_t*>(stream), closed) != 0)
    uv_close(handle(stream), closed);
  return true;
}

}  // namespace idlewheel
