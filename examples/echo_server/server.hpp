// server.hpp - the listener, the sessions and their end.
#pragma once
#include <uv.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "idlewheel/connection/connection_reaper.hpp"
#include "idlewheel/connection/timeout_policy.hpp"
#include "idlewheel/uv/loop_wheel.hpp"
#include "journal.hpp"
#include "options.hpp"
#include "session.hpp"

namespace echo {

// "127.0.0.1:7777", "[::1]:7777".
std::string to_string(const sockaddr_storage& address);

class server {
 public:
  server(uv_loop_t* loop, const options& wanted);
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  // Binds, listens and says so. Returns 0 or a libuv error.
  int listen();

  // Stops accepting and closes everything; the loop then runs out of work.
  void shut_down();

  void print_summary();

  // For sessions.
  uv_loop_t* loop() { return loop_; }
  idlewheel::loop_wheel& wheel() { return wheel_; }
  idlewheel::connection_reaper& reaper() { return reaper_; }
  const idlewheel::timeout_policy& policy() const { return policy_; }
  uv_buf_t read_buffer();
  void count_refresh() { ++totals_.refreshes; }
  void on_opened(const session& opened);
  void on_closing(session& ending, const closing& how);
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
  options options_;
  idlewheel::timeout_policy policy_;
  idlewheel::loop_wheel wheel_;
  idlewheel::connection_reaper reaper_{wheel_};
  journal journal_;
  totals totals_;
  std::size_t limit_;
  std::uint64_t next_id_ = 1;
  std::uint64_t refreshes_shown_ = 0;
  std::unordered_set<session*> sessions_;
  std::uint64_t limit_told_ms_ = 0;
  bool waiting_ = false;  // a connection that the limit keeps us from accepting
  bool stopping_ = false;
  uv_tcp_t listener_{};
  uv_signal_t interrupt_{};
  uv_signal_t terminate_{};
  uv_prepare_t before_poll_{};
  uv_timer_t every_second_{};
  // All sessions read into the same memory: what is read is echoed or copied before the next read.
  std::array<char, 64 * 1024> buffer_;
};

}  // namespace echo
