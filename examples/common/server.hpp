// server.hpp - one loop's listener, its connections and their end: the same for every protocol.
#pragma once
#include <uv.h>

#include <array>
#include <chrono>
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

// Which of how many servers this one is, each on a loop and thread of its own.
struct lane {
  unsigned index = 0;
  unsigned of = 1;
};

class server {
 public:
  // Makes the connection that the next uv_accept() fills. Called on the thread of each server.
  using factory = std::function<connection*(server&, std::uint64_t id)>;

  // Throws as loop_wheel does.
  server(uv_loop_t* loop, const std::string& program, const server_options& wanted,
         const factory& make, lane which);
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  // Binds and listens. Returns 0 or a libuv error.
  int listen(const sockaddr_storage& address);
  sockaddr_storage address() const;

  // How many connections it may have at once.
  void limit_to(std::size_t connections) { limit_ = connections; }

  // Accepts no more, lets connections finish, and shuts down.
  void drain();
  bool draining() const { return reaper_.draining(); }

  // Stops accepting and closes everything; the loop then runs out of work.
  void shut_down();

  // Called once it shuts down.
  std::function<void()> on_end;

  totals all() const;
  journal& log() { return journal_; }

  // For connections.
  uv_loop_t* loop() { return loop_; }
  idlewheel::loop_wheel& wheel() { return wheel_; }
  idlewheel::connection_reaper& reaper() { return reaper_; }
  uv_buf_t read_buffer();
  void count_refresh() { ++totals_.refreshes; }
  void on_opened(const connection& opened);
  void on_closing(connection& ending, const closing& how);
  void on_closed();
  void on_would_close(const connection& who, const std::string& reason,
                      std::chrono::nanoseconds late);

 private:
  void on_connection(int status);
  bool full() const { return totals_.open >= limit_; }
  void make_room();
  void accept_one();
  void stop_accepting();
  void end_if_drained();
  void press();
  bool once_a_second(std::uint64_t& told_ms) const;
  void show_status();

  template <class Handle>
  static uv_handle_t* as_handle(Handle& h) {
    return reinterpret_cast<uv_handle_t*>(&h);
  }

  uv_loop_t* loop_;
  const server_options& options_;
  const factory& make_;
  lane lane_;
  idlewheel::loop_wheel wheel_;
  idlewheel::connection_reaper reaper_{wheel_};
  journal journal_;
  totals totals_;
  std::size_t limit_ = ~std::size_t{0};
  std::uint64_t next_id_;
  std::uint64_t refreshes_shown_ = 0;
  std::unordered_set<connection*> connections_;
  std::uint64_t limit_told_ms_ = 0;
  std::uint64_t problem_told_ms_ = 0;
  bool waiting_ = false;  // a connection that the limit keeps us from accepting
  bool drained_ = false;
  bool stopping_ = false;
  uv_tcp_t listener_{};
  uv_prepare_t before_poll_{};
  uv_timer_t every_second_{};
  uv_timer_t try_again_{};  // while one waits and none can be evicted
  uv_timer_t lame_duck_{};
  // All connections read into the same memory: what is read is echoed or copied before the next read.
  std::array<char, 64 * 1024> buffer_;
};

}  // namespace example
