// stream_close_test.cpp - what the peer sees of each way to end a stream, in any order.
#include "idlewheel/uv/stream_close.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tests/uv/support.hpp"

namespace idlewheel::uv_tests {
namespace {

class StreamClose : public ::testing::Test {
 protected:
  void SetUp() override {
    const fd_pair pair = tcp_pair();
    ours_ = pair[0];
    peer_ = pair[1];
    stream_ = new uv_tcp_t;
    ASSERT_EQ(uv_tcp_init(on, stream_), 0);
    ASSERT_EQ(uv_tcp_open(stream_, ours_), 0);
  }
  void TearDown() override {
    if (!closed_) close_stream(stream(), freed);
    on.run();
    ::close(peer_);
  }
  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(stream_); }

  static void freed(uv_handle_t* h) { delete reinterpret_cast<uv_tcp_t*>(h); }

  // What the peer reads until there is no more: the bytes, and "FIN" or "RST".
  std::string peer_sees() {
    std::string all;
    on.poll_until([&] {
      char buffer[4096];
      const ssize_t n = recv(peer_, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) {
        all.append(buffer, static_cast<std::size_t>(n));
        return false;
      }
      if (n == 0) all += "FIN";
      if (n < 0 && errno == ECONNRESET) all += "RST";
      return n == 0 || errno == ECONNRESET;
    });
    return all;
  }
  void write(std::string text) {
    struct pending {
      uv_write_t request;
      std::string text;
    };
    auto* p = new pending{{}, std::move(text)};
    p->request.data = p;
    uv_buf_t buffer = uv_buf_init(p->text.data(), static_cast<unsigned>(p->text.size()));
    uv_write(&p->request, stream(), &buffer, 1,
             [](uv_write_t* done, int) { delete static_cast<pending*>(done->data); });
  }

  loop on;
  int ours_ = -1;
  int peer_ = -1;
  uv_tcp_t* stream_ = nullptr;
  bool closed_ = false;
};

TEST_F(StreamClose, CloseIsAFin) {
  EXPECT_TRUE(close_stream(stream(), freed));
  closed_ = true;
  EXPECT_EQ(peer_sees(), "FIN");
}

TEST_F(StreamClose, ResetIsARst) {
  EXPECT_TRUE(reset_stream(stream(), freed));
  closed_ = true;
  EXPECT_EQ(peer_sees(), "RST");
}

TEST_F(StreamClose, HalfCloseSendsWhatIsQueuedThenAFin) {
  const std::string text(100'000, 'x');
  write(text);
  EXPECT_EQ(half_close(stream()), 0);
  EXPECT_EQ(peer_sees(), text + "FIN");
}

TEST_F(StreamClose, HalfClosedTwiceSaysSo) {
  EXPECT_EQ(half_close(stream()), 0);
  EXPECT_EQ(half_close(stream()), UV_ENOTCONN);
  EXPECT_EQ(peer_sees(), "FIN");
}

TEST_F(StreamClose, NothingIsClosedTwice) {
  EXPECT_TRUE(close_stream(stream(), freed));
  closed_ = true;
  EXPECT_FALSE(close_stream(stream(), freed));
  EXPECT_FALSE(reset_stream(stream(), freed));
  EXPECT_EQ(half_close(stream()), UV_ECANCELED);
  EXPECT_EQ(peer_sees(), "FIN");
}

TEST_F(StreamClose, WhileAHalfCloseWaitsForItsQueueAResetIsAClose) {
  write(std::string(8'000'000, 'x'));
  on.run_for(20ms);
  EXPECT_EQ(half_close(stream()), 0);
  EXPECT_TRUE(reset_stream(stream(), freed));
  closed_ = true;
  EXPECT_TRUE(peer_sees().ends_with("FIN"));
}

TEST_F(StreamClose, OnceTheFinIsOutAResetIsOne) {
  EXPECT_EQ(half_close(stream()), 0);
  on.run_for(20ms);
  EXPECT_TRUE(reset_stream(stream(), freed));
  closed_ = true;
  EXPECT_TRUE(on.run_until([&] {
    char byte = 0;
    return ::send(peer_, &byte, 1, MSG_NOSIGNAL) < 0;  // the RST has come
  }));
}

TEST_F(StreamClose, AResetDropsWhatThePeerDoesNotTake) {
  write(std::string(8'000'000, 'x'));
  on.run_for(20ms);
  EXPECT_TRUE(reset_stream(stream(), freed));
  closed_ = true;
  const std::string seen = peer_sees();
  EXPECT_LT(seen.size(), 8'000'000u);
  EXPECT_TRUE(seen.ends_with("RST"));
}

}  // namespace
}  // namespace idlewheel::uv_tests
