// server.hpp - the listener, its connections and their end: the same for every protocol.
#pragma once
#include <uv.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>

#include "command_line.hpp"
#include "connection.hpp"
#include "idlewheel/connection/connection_reaper.hpp"
#include "idlewheel/uv/loop_wheel.hpp"
#include "journal.hpp"

namespace example {

// "127.0.0.1:7777", "[::1]:7777".
std::string to_string(const sockaddr_storage& address);

class server {
 public:
  // Makes the connection that the next uv_accept() fills.
  using factory = std::function<connection*(server&, std::uint64_t id)>;

  // Throws as loop_wheel does.
  server(uv_loop_t* loop, std::string program, const server_options& wanted, factory make);
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  // Binds, listens and says so. Returns 0 or a libuv error.
  int listen();

  // Stops accepting and closes everything; the loop then runs out of work.
  void shut_down();

  void print_summary();

  // For connections.
  uv_loop_t* loop() { return loop_; }
  idlewheel::loop_wheel& wheel() { return wheel_; }
  idlewheel::connection_reaper& reaper() { return reaper_; }
  uv_buf_t read_buffer();
  void count_refresh() { ++totals_.refreshes; }
  void on_opened(const connection& opened);
  void on_closing(connection& ending, const closing& how);
  void on_closed();

 private:
  void on_connection(int status);
  bool full() const { return limit_ != 0 && totals_.open >= limit_; }
  void accept_one();
  void show_status();

  template <class Handle>
  static uv_handle_t* as_handle(Handle& h) {
    return reinterpret_cast<uv_handle_t*>(&h);
  }

  uv_loop_t* loop_;
  server_options options_;
  factory make_;
  idlewheel::loop_wheel wheel_;
  idlewheel::connection_reaper reaper_{wheel_};
  journal journal_;
  totals totals_;
  std::size_t limit_;
  std::uint64_t next_id_ = 1;
  std::uint64_t refreshes_shown_ = 0;
  std::unordered_set<connection*> connections_;
  std::uint64_t limit_told_ms_ = 0;
  bool waiting_ = false;  // a connection that the limit keeps us from accepting
  bool stopping_ = false;
  uv_tcp_t listener_{};
  uv_async_t signalled_{};
  uv_prepare_t before_poll_{};
  uv_timer_t every_second_{};
  // All connections read into the same memory: what is read is echoed or copied before the next read.
  std::array<char, 64 * 1024> buffer_;
};

// Runs a server from its options to its end: listens, serves until a signal, prints a summary. Returns
// the exit status.
int serve(const std::string& program, const server_options& wanted, const server::factory& make);

}  // namespace example
