// connection.hpp - one accepted connection: its socket, its timeouts, and the rules of writing.
//
// Never more than one write is pending: while the peer does not take what we send, we do not read,
// so that it cannot make our memory grow.
#pragma once
#include <uv.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idlewheel/connection/connection_timeouts.hpp"
#include "journal.hpp"

namespace example {

class server;

class connection : protected idlewheel::timeout_handler {
 public:
  // Owned by its libuv handle: deletes itself when that is closed.
  connection(server& owner, std::uint64_t id, const idlewheel::timeout_policy& policy,
             idlewheel::phase first);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  virtual ~connection() = default;

  uv_tcp_t* tcp() { return &tcp_; }
  std::uint64_t id() const { return id_; }
  const std::string& peer() const { return peer_; }

  // After uv_accept(): begins to read.
  void start();

  // Ends the connection now, whatever is still queued; the first reason counts. `late` belongs to a
  // timeout.
  void close(std::string reason, std::optional<std::chrono::nanoseconds> late = std::nullopt);

 protected:
  // Bytes have come. `data` is gone when this returns.
  virtual void on_bytes(const char* data, std::size_t size) = 0;
  // All that was sent has been taken by the kernel, after it was not at once.
  virtual void on_drained() {}

  // The server ends and nothing is in flight: begin to end the connection gently.
  virtual void on_drain() { say_goodbye(); }

  // Closes at once, for the name of what ran out; where a RST is deserved, with one.
  idlewheel::verdict on_timeout(const idlewheel::expiry& out) noexcept override;
  void on_would_close(const idlewheel::expiry& out) noexcept override;

  // Copies what the kernel does not take at once. pre: !sending().
  void send(std::string_view data);
  bool sending() const { return sending_; }
  std::uint64_t received() const { return rx_; }

  // What is told as the reason when it closes, whoever closes it then; the first counts.
  void decide(std::string reason, std::optional<std::chrono::nanoseconds> late = std::nullopt);

  // Sends what is queued, then a FIN; reads on to see the peer's, and drops what comes before it:
  // there is no answer any more.
  void say_goodbye();
  bool said_goodbye() const { return goodbye_; }

  void stop_reading(idlewheel::pause why);
  void resume_reading();

  bool closing() const { return uv_is_closing(reinterpret_cast<const uv_handle_t*>(&tcp_)) != 0; }
  server& owner() { return owner_; }
  idlewheel::connection_timeouts& timeouts() { return timeouts_; }
  std::chrono::nanoseconds lateness(const idlewheel::expiry& out);

 private:
  struct pending_write;

  void on_read(ssize_t result, const char* data);
  void on_written(int status, std::size_t size);
  void fail(int error);
  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&tcp_); }

  server& owner_;
  std::uint64_t id_;
  uv_tcp_t tcp_{};
  std::string peer_;
  std::uint64_t rx_ = 0;
  std::uint64_t tx_ = 0;
  bool sending_ = false;
  bool reading_ = false;
  bool may_read_ = true;  // what the protocol wants
  bool goodbye_ = false;
  bool reset_ = false;  // close with a RST
  std::string reason_;
  std::optional<std::chrono::nanoseconds> late_;
  idlewheel::connection_timeouts timeouts_;
};

}  // namespace example
