// session.hpp - one connection: what comes in goes out again, until somebody falls silent.
#pragma once
#include <uv.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "idlewheel/connection/connection_timeouts.hpp"
#include "journal.hpp"

namespace echo {

class server;

class session final : idlewheel::timeout_handler {
 public:
  // Owned by its libuv handle: deletes itself when that is closed.
  session(server& owner, std::uint64_t id);
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  uv_tcp_t* tcp() { return &tcp_; }
  std::uint64_t id() const { return id_; }
  const std::string& peer() const { return peer_; }

  // After uv_accept(): begins to read.
  void start();

  // Ends the connection now, whatever is still queued; the first reason counts. `late` belongs to a
  // timeout.
  void close(std::string reason, std::optional<std::chrono::nanoseconds> late = std::nullopt);

 private:
  struct pending_write;

  idlewheel::verdict on_timeout(const idlewheel::expiry& out) noexcept override;
  void on_read(ssize_t result, const char* data);
  void echo(const char* data, std::size_t size);
  void on_written(int status, std::size_t size);
  void listen_to_peer();
  void fail(int error);

  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&tcp_); }
  uv_handle_t* handle() { return reinterpret_cast<uv_handle_t*>(&tcp_); }

  server& owner_;
  std::uint64_t id_;
  uv_tcp_t tcp_{};
  std::string peer_;
  std::uint64_t rx_ = 0;
  std::uint64_t tx_ = 0;
  idlewheel::connection_timeouts timeouts_;
};

}  // namespace echo
