// socket_look_test.cpp - what the kernel says about a socket, against what the test knows of it.
//
// Stamps may be a little later than the truth, never earlier.
#include "idlewheel/uv/socket_look.hpp"

#include <sys/syscall.h>

#include <cstdarg>

#include "tests/uv/support.hpp"

namespace {
std::chrono::milliseconds ioctl_takes{0};
}

// Ours stands before the C library's, so that a test can hold a thread up in the middle of a look,
// as a scheduler may.
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (ioctl_takes.count() != 0) std::this_thread::sleep_for(ioctl_takes);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

namespace idlewheel::uv_tests {
namespace {

constexpr auto coarse =
    60ms;  // how much later than the truth a stamp may be; a jiffy is 10 at most

bool says_nothing(const socket_look& look) {
  return !look.unread && !look.unsent && !look.last_arrival && !look.last_delivery;
}

class SocketLook : public testing::Test {
 protected:
  loop on;

  socket_look look(const socket_view& view) { return look_at_socket(view); }
  // The bytes have arrived in our kernel.
  bool arrived(const endpoint& end, int n) {
    return on.poll_until([&] { return unread(end.ours()) == n; }, 5s);
  }
  static std::function<void(std::size_t)> ignore() {
    return [](std::size_t) {};
  }
};

TEST_F(SocketLook, NoSocketSaysNothing) {
  EXPECT_TRUE(says_nothing(look({})));
  EXPECT_TRUE(says_nothing(look(socket_view{nullptr})));
  EXPECT_TRUE(says_nothing(look(socket_view::descriptor(-1))));
  EXPECT_TRUE(says_nothing(look(socket_view::descriptor(-77))));
}

TEST_F(SocketLook, AClosedDescriptorSaysNothing) {
  const int fd = dup(0);
  ::close(fd);
  EXPECT_TRUE(says_nothing(look(socket_view::descriptor(fd))));
}

TEST_F(SocketLook, AHandleWithoutASocketSaysNothing) {
  owned<uv_tcp_t> tcp;
  uv_tcp_init(on, tcp.get());
  EXPECT_TRUE(says_nothing(look(socket_view{tcp.stream()})));
}

TEST_F(SocketLook, AClosingHandleSaysNothing) {
  endpoint end{on, transport::tcp, ignore()};
  const socket_view view = end.view();
  EXPECT_FALSE(says_nothing(look(view)));
  end.close();
  EXPECT_TRUE(says_nothing(look(view)));  // libuv keeps the handle until the next turn
}

TEST_F(SocketLook, APipeOfTheShellHasNeitherUnsentNorStamps) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], "abc", 3), 3);
  const socket_look seen = look(socket_view::descriptor(ends[0]));
  EXPECT_EQ(seen.unread, 3u);
  EXPECT_FALSE(seen.unsent);
  EXPECT_FALSE(seen.last_arrival);
  EXPECT_FALSE(seen.last_delivery);
  ::close(ends[0]);
  ::close(ends[1]);
}

class SocketLookAtEach : public SocketLook, public testing::WithParamInterface<transport> {};

TEST_P(SocketLookAtEach, CountsWhatIsUnreadExactly) {
  endpoint end{on, GetParam(), ignore()};
  end.stop_reading();
  EXPECT_EQ(look(end.view()).unread, 0u);
  end.say(5);
  ASSERT_TRUE(arrived(end, 5));
  EXPECT_EQ(look(end.view()).unread, 5u);
  end.say(1'000);
  ASSERT_TRUE(arrived(end, 1'005));
  EXPECT_EQ(look(end.view()).unread, 1'005u);
  EXPECT_EQ(look(socket_view::descriptor(end.ours())).unread, 1'005u);
  end.read();
  EXPECT_TRUE(on.poll_until([&] { return look(end.view()).unread == 0u; }, 5s));
}

TEST_P(SocketLookAtEach, UnsentIsZeroExactlyWhenThePeerHasTakenAll) {
  endpoint end{on, GetParam(), ignore()};
  EXPECT_EQ(look(end.view()).unsent, 0u);
  ASSERT_EQ(::send(end.ours(), "hello", 5, MSG_NOSIGNAL), 5);
  if (GetParam() != transport::tcp) {
    EXPECT_GT(look(end.view()).unsent, 0u) << "nobody has read it";
  }
  // Over TCP the peer's kernel takes it, here at once or with its next acknowledgement.
  EXPECT_TRUE(on.poll_until(
      [&] {
        end.hear(100);
        return look(end.view()).unsent == 0u;
      },
      5s));
}

INSTANTIATE_TEST_SUITE_P(Transports, SocketLookAtEach,
                         testing::Values(transport::poll, transport::pipe, transport::tcp),
                         [](const auto& i) { return name_of_transport(i.param); });

TEST_F(SocketLook, UnsentOfAStreamIsTheQueuesOfLibuvAndOfTheKernelTogether) {
  endpoint end{on, transport::tcp, ignore()};
  constexpr std::size_t total = 20'000'000;
  struct answer {
    std::vector<char> bytes = std::vector<char>(total, 'x');
    uv_write_t request{};
  };
  auto* a = new answer;
  a->request.data = a;
  const uv_buf_t buffer = uv_buf_init(a->bytes.data(), total);
  ASSERT_EQ(uv_write(&a->request, end.stream(), &buffer, 1,
                     [](uv_write_t* r, int) { delete static_cast<answer*>(r->data); }),
            0);
  on.run_for(50ms);
  ASSERT_GT(uv_stream_get_write_queue_size(end.stream()), 0u) << "or the test proves nothing";
  const auto taken = [&] {
    const auto unsent = look(end.view()).unsent;
    EXPECT_TRUE(unsent);
    EXPECT_LE(unsent.value_or(0), total);
    return total - unsent.value_or(0);
  };
  EXPECT_LE(static_cast<std::size_t>(unread(end.peer())), total);
  // What the peer's kernel has and what it has not add up, but for what is under way.
  std::size_t heard = 0, before = taken();
  EXPECT_GT(before, 0u);
  EXPECT_LE(before, static_cast<std::size_t>(unread(end.peer())));
  ASSERT_TRUE(on.poll_until(
      [&] {
        heard += end.hear(1'000'000);
        const std::size_t now = taken();
        EXPECT_GE(now, before) << "what the peer has taken, it does not give back";
        EXPECT_LE(now, heard + static_cast<std::size_t>(unread(end.peer())));
        before = now;
        return heard == total;
      },
      20s));
  ASSERT_TRUE(on.poll_until([&] { return look(end.view()).unsent == 0u; }, 5s));
}

TEST_F(SocketLook, StampsOfAFreshTcpConnectionAreItsBeginning) {
  const instant before = clock_now();
  endpoint end{on, transport::tcp, ignore()};
  const instant after = clock_now();
  block_for(150ms);
  const socket_look seen = look(end.view());
  ASSERT_TRUE(seen.last_arrival && seen.last_delivery);
  EXPECT_GE(*seen.last_arrival, before);
  EXPECT_LE(*seen.last_arrival, after + coarse);
  EXPECT_GE(*seen.last_delivery, before);
  EXPECT_LE(*seen.last_delivery, after + coarse);
}

TEST_F(SocketLook, LastArrivalIsWhenDataCameNeverEarlier) {
  endpoint end{on, transport::tcp, ignore()};
  end.stop_reading();
  int bytes = 0;
  for (const auto pause : {0ms, 1ms, 7ms, 40ms, 200ms}) {
    const instant before = end.say();
    ASSERT_TRUE(arrived(end, ++bytes));
    const instant after = clock_now();
    block_for(pause);
    const socket_look seen = look(end.view());
    ASSERT_TRUE(seen.last_arrival);
    EXPECT_GE(*seen.last_arrival, before) << pause.count();
    EXPECT_LE(*seen.last_arrival, after + coarse) << pause.count();
    EXPECT_LE(*seen.last_arrival, clock_now());
  }
}

TEST_F(SocketLook, LastArrivalIsNotMovedByReadingNorByWriting) {
  endpoint end{on, transport::tcp, ignore()};
  end.say(10);
  ASSERT_TRUE(on.poll_until([&] { return look(end.view()).unread == 0u; }, 5s));
  const instant after = clock_now();
  block_for(150ms);
  ASSERT_EQ(::send(end.ours(), "hello", 5, MSG_NOSIGNAL), 5);
  block_for(5ms);
  EXPECT_LE(look(end.view()).last_arrival.value(), after + coarse);
}

TEST_F(SocketLook, LastDeliveryIsWhenThePeerTookItNeverEarlier) {
  endpoint end{on, transport::tcp, ignore()};
  block_for(100ms);
  const instant before = clock_now();
  ASSERT_EQ(::send(end.ours(), "hello", 5, MSG_NOSIGNAL), 5);
  ASSERT_TRUE(on.poll_until([&] { return look(end.view()).unsent == 0u; }, 5s));
  const instant after = clock_now();
  block_for(150ms);
  const socket_look seen = look(end.view());
  ASSERT_TRUE(seen.last_delivery);
  EXPECT_GE(*seen.last_delivery, before);
  EXPECT_LE(*seen.last_delivery, after + coarse);
}

TEST_F(SocketLook, AResetConnectionHasNoStamps) {
  endpoint end{on, transport::tcp, ignore()};
  end.reset();
  EXPECT_TRUE(on.poll_until(
      [&] {
        const socket_look seen = look(end.view());
        return !seen.last_arrival && !seen.last_delivery;
      },
      5s));
}

TEST_F(SocketLook, AHalfClosedConnectionStillHasThem) {
  endpoint end{on, transport::tcp, ignore()};
  end.say(3);
  shutdown(end.peer(), SHUT_WR);
  on.run_for(20ms);
  const socket_look seen = look(end.view());
  EXPECT_EQ(seen.unread, 0u);
  EXPECT_TRUE(seen.last_arrival);
  EXPECT_TRUE(seen.last_delivery);
}

TEST_F(SocketLook, ThroughTheWheelIsTheSameUnlessLooksAreOff) {
  endpoint end{on, transport::tcp, ignore()};
  end.stop_reading();
  end.say(3);
  ASSERT_TRUE(arrived(end, 3));
  loop_wheel looking{on}, blind{on, {.last_look = false}};
  EXPECT_EQ(looking.look(end.view()).unread, 3u);
  EXPECT_TRUE(looking.look(end.view()).last_arrival);
  EXPECT_TRUE(says_nothing(blind.look(end.view())));
}

// The kernel's answer is relative to the moment of the system call. A thread may lose its processor
// between reading the clock and that call.
TEST_F(SocketLook, StampsAreNotEarlierThanTheTruthEvenWhenTheLookIsHeldUp) {
  endpoint end{on, transport::tcp, ignore()};
  end.stop_reading();
  loop_wheel wheel{on};
  const instant before = end.say();
  ASSERT_TRUE(arrived(end, 1));
  block_for(20ms);
  ioctl_takes = 60ms;
  const socket_look seen = wheel.look(end.view());
  ioctl_takes = 0ms;
  ASSERT_TRUE(seen.last_arrival && seen.last_delivery);
  EXPECT_GE(*seen.last_arrival, before);
}

}  // namespace
}  // namespace idlewheel::uv_tests
