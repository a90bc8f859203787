// support.hpp - a loop, sockets and time for the tests that run on a real one.
//
// Lower bounds on time are exact: what happened is stamped before it happens. Nothing here asserts
// an upper bound but the guard of loop::run_until, which is far beyond what a busy machine needs.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "idlewheel/uv/loop_wheel.hpp"

namespace idlewheel::uv_tests {
using namespace std::chrono_literals;

inline instant clock_now() {
  return instant{std::chrono::nanoseconds{static_cast<std::int64_t>(uv_hrtime())}};
}

inline void block_for(std::chrono::nanoseconds d) { std::this_thread::sleep_for(d); }

inline std::string name_of_mode(refresh_mode mode) {
  return mode == refresh_mode::relink ? "Relink" : "Deferred";
}

// Every behavioural test runs in both refresh modes.
class ByMode : public testing::TestWithParam<refresh_mode> {};

#define IDLEWHEEL_IN_BOTH_MODES(suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(Modes, suite,                                                  \
                           testing::Values(refresh_mode::relink, refresh_mode::deferred), \
                           [](const auto& i) { return name_of_mode(i.param); })

// A handle that frees itself when libuv has closed it; closing is all its owner does.
template <class Handle>
class owned {
 public:
  owned() : handle_{new Handle{}} {}
  owned(const owned&) = delete;
  owned& operator=(const owned&) = delete;
  ~owned() { close(); }

  void close() {
    if (handle_ == nullptr) return;
    uv_close(generic(), [](uv_handle_t* h) { delete reinterpret_cast<Handle*>(h); });
    handle_ = nullptr;
  }

  Handle* get() const { return handle_; }
  uv_handle_t* generic() const { return reinterpret_cast<uv_handle_t*>(handle_); }
  uv_stream_t* stream() const { return reinterpret_cast<uv_stream_t*>(handle_); }
  template <class Super>
  Super* as() const {
    return reinterpret_cast<Super*>(handle_);
  }

 private:
  Handle* handle_;
};

// A uv_loop_t that is closed, and must be closable, at the end. Declare it first.
class loop {
 public:
  loop() { EXPECT_EQ(uv_loop_init(&loop_), 0); }
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop() {
    uv_run(&loop_, UV_RUN_NOWAIT);  // one more turn closes what was closed
    EXPECT_EQ(uv_loop_close(&loop_), 0) << "a handle was left open";
  }

  uv_loop_t* get() { return &loop_; }
  operator uv_loop_t*() { return &loop_; }
  void run() { uv_run(&loop_, UV_RUN_DEFAULT); }

  // Turns the loop until `done`, asked before each poll. False when that took longer than `limit`.
  // Causes no turn by itself.
  bool run_until(const std::function<bool()>& done, std::chrono::milliseconds limit = 30s) {
    struct state {
      const std::function<bool()>& done;
      bool reached = false;
    } state{done};
    if (done()) return true;
    owned<uv_timer_t> guard;  // counted from the loop's cached time, which may be old
    uv_timer_init(&loop_, guard.get());
    uv_timer_start(
        guard.get(), [](uv_timer_t* h) { uv_stop(h->loop); },
        static_cast<std::uint64_t>(limit.count()) + uv_hrtime() / 1'000'000 + 1 - uv_now(&loop_),
        0);
    owned<uv_prepare_t> asker;
    uv_prepare_init(&loop_, asker.get());
    asker.get()->data = &state;
    uv_prepare_start(asker.get(), [](uv_prepare_t* h) {
      auto& s = *static_cast<struct state*>(h->data);
      if (!s.reached && s.done()) s.reached = true;
      if (s.reached) uv_stop(h->loop);
    });
    uv_run(&loop_, UV_RUN_DEFAULT);
    return state.reached;
  }

  // The same for what no event tells of: asks every millisecond.
  bool poll_until(const std::function<bool()>& done, std::chrono::milliseconds limit = 20s) {
    const instant end = later(clock_now(), limit);
    while (!done()) {
      if (clock_now() > end) return false;
      uv_run(&loop_, UV_RUN_NOWAIT);
      block_for(1ms);
    }
    return true;
  }

  // Turns the loop for d at least.
  void run_for(std::chrono::milliseconds d) {
    EXPECT_FALSE(run_until([] { return false; }, d));
  }

 private:
  uv_loop_t loop_;
};

// A uv_timer_t that calls a function; for what happens beside the wheel.
class loop_timer {
 public:
  loop_timer(uv_loop_t* loop, std::chrono::milliseconds delay, std::chrono::milliseconds repeat,
             std::function<void()> f)
      : f_{std::move(f)} {
    uv_timer_init(loop, timer_.get());
    timer_.get()->data = this;
    uv_timer_start(
        timer_.get(), [](uv_timer_t* h) { static_cast<loop_timer*>(h->data)->f_(); },
        static_cast<std::uint64_t>(delay.count()), static_cast<std::uint64_t>(repeat.count()));
  }
  loop_timer(uv_loop_t* loop, std::chrono::milliseconds delay, std::function<void()> f)
      : loop_timer{loop, delay, 0ms, std::move(f)} {}
  void stop() { uv_timer_stop(timer_.get()); }
  uv_timer_t* get() const { return timer_.get(); }

 private:
  owned<uv_timer_t> timer_;
  std::function<void()> f_;
};

// Calls a function in each turn, in one of its phases. It does not keep the loop from waiting,
// except in the idle phase.
template <class Handle, int (*Init)(uv_loop_t*, Handle*), int (*Start)(Handle*, void (*)(Handle*)),
          int (*Stop)(Handle*)>
class each_turn {
 public:
  each_turn(uv_loop_t* loop, std::function<void()> f) : f_{std::move(f)} {
    Init(loop, handle_.get());
    handle_.get()->data = this;
    Start(handle_.get(), [](Handle* h) { static_cast<each_turn*>(h->data)->f_(); });
    uv_unref(handle_.generic());
  }
  void stop() { Stop(handle_.get()); }

 private:
  owned<Handle> handle_;
  std::function<void()> f_;
};
using each_prepare = each_turn<uv_prepare_t, uv_prepare_init, uv_prepare_start, uv_prepare_stop>;
using each_check = each_turn<uv_check_t, uv_check_init, uv_check_start, uv_check_stop>;
using each_idle = each_turn<uv_idle_t, uv_idle_init, uv_idle_start, uv_idle_stop>;

// Keeps the loop running, and asleep.
class sleeper {
 public:
  explicit sleeper(uv_loop_t* loop) { uv_async_init(loop, async_.get(), nullptr); }
  uv_async_t* get() const { return async_.get(); }

 private:
  owned<uv_async_t> async_;
};

inline void unblock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// Two connected sockets, neither of them blocking.
using fd_pair = std::array<int, 2>;

inline fd_pair local_pair() {
  fd_pair pair{-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()), 0);
  return pair;
}

// Over 127.0.0.1, whatever port is free. `send_buffer`, when given, is the size of ours.
inline fd_pair tcp_pair() {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(listener, address, size), 0);
  EXPECT_EQ(listen(listener, 8), 0);
  EXPECT_EQ(getsockname(listener, address, &size), 0);
  const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(peer, address, size), 0);
  const int ours = accept(listener, nullptr, nullptr);
  EXPECT_GE(ours, 0);
  ::close(listener);
  const int no_delay = 1;
  setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
  unblock(ours);
  unblock(peer);
  return {ours, peer};
}

enum class transport { poll, pipe, tcp };

inline const char* name_of_transport(transport t) {
  return t == transport::poll ? "Poll" : t == transport::pipe ? "Pipe" : "Tcp";
}

// Our end of a connection, read by libuv, and the peer's end, a bare descriptor.
class endpoint {
 public:
  endpoint(uv_loop_t* loop, transport kind, std::function<void(std::size_t)> on_bytes)
      : kind_{kind}, on_bytes_{std::move(on_bytes)} {
    const fd_pair pair = kind == transport::tcp ? tcp_pair() : local_pair();
    ours_ = pair[0];
    peer_ = pair[1];
    switch (kind) {
      case transport::poll:
        uv_poll_init(loop, as<uv_poll_t>(), ours_);
        break;
      case transport::pipe:
        uv_pipe_init(loop, as<uv_pipe_t>(), 0);
        EXPECT_EQ(uv_pipe_open(as<uv_pipe_t>(), ours_), 0);
        break;
      case transport::tcp:
        uv_tcp_init(loop, as<uv_tcp_t>());
        EXPECT_EQ(uv_tcp_open(as<uv_tcp_t>(), ours_), 0);
        break;
    }
    handle_.get()->handle.data = this;
    read();
  }
  ~endpoint() { close(); }
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  void read() {
    if (kind_ == transport::poll)
      uv_poll_start(as<uv_poll_t>(), UV_READABLE, [](uv_poll_t* h, int, int) {
        auto* self = static_cast<endpoint*>(h->data);
        char bytes[4096];
        const ssize_t n = ::read(self->ours_, bytes, sizeof bytes);
        if (n > 0) self->on_bytes_(static_cast<std::size_t>(n));
        if (n == 0) uv_poll_stop(h);
      });
    else
      uv_read_start(
          stream(),
          [](uv_handle_t*, std::size_t, uv_buf_t* buf) {
            static char bytes[65536];  // one loop at a time reads into it
            *buf = uv_buf_init(bytes, sizeof bytes);
          },
          [](uv_stream_t* h, ssize_t n, const uv_buf_t*) {
            auto* self = static_cast<endpoint*>(h->data);
            if (n > 0) self->on_bytes_(static_cast<std::size_t>(n));
            if (n < 0) uv_read_stop(h);
          });
  }
  void stop_reading() {
    if (kind_ == transport::poll)
      uv_poll_stop(as<uv_poll_t>());
    else
      uv_read_stop(stream());
  }

  // The peer sends n bytes. Returns a time before they can have arrived.
  instant say(std::size_t n = 1) {
    const std::vector<char> bytes(n, 'x');
    const instant before = clock_now();
    EXPECT_EQ(::send(peer_, bytes.data(), n, MSG_NOSIGNAL), static_cast<ssize_t>(n));
    return before;
  }

  // What the peer reads, at most `most`; 0 when nothing is there.
  std::size_t hear(std::size_t most) {
    std::vector<char> bytes(most);
    const ssize_t n = ::recv(peer_, bytes.data(), most, MSG_DONTWAIT);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }

  // The peer is gone without a farewell: a reset where the transport has one.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(peer_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    hang_up();
  }
  void hang_up() {
    if (peer_ >= 0) ::close(peer_);
    peer_ = -1;
  }

  void close() {
    hang_up();
    if (handle_.get() == nullptr) return;
    if (kind_ == transport::poll) {
      uv_poll_stop(as<uv_poll_t>());
      ::close(ours_);
    }
    handle_.close();
  }

  socket_view view() const {
    return kind_ == transport::poll ? socket_view::descriptor(ours_) : socket_view{stream()};
  }
  uv_stream_t* stream() const { return handle_.stream(); }
  int ours() const { return ours_; }
  int peer() const { return peer_; }

 private:
  template <class T>
  T* as() const {
    return handle_.as<T>();
  }

  transport kind_;
  std::function<void(std::size_t)> on_bytes_;
  owned<uv_any_handle> handle_;
  int ours_ = -1;
  int peer_ = -1;
};

// Bytes that are there to be read, without waiting.
inline int unread(int fd) {
  int n = -1;
  return ioctl(fd, FIONREAD, &n) == 0 ? n : -1;
}

// A timer's callback holds one pointer; this is what it points to in most tests.
struct firing {
  explicit firing(loop_wheel* on = nullptr) : wheel{on} {}
  loop_wheel* wheel;
  timer t{[this] { note(); }};
  int count = 0;
  instant at{};
  std::function<void()> then;

  void note() {
    ++count;
    at = clock_now();
    if (then) then();
  }
};

}  // namespace idlewheel::uv_tests
