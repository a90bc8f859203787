#include "tests/support/client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "tests/support/process.hpp"

namespace idlewheel::test {

client::client(const std::string& host, int port) : last_sent_{steady::now()} {
  sockaddr_storage address{};
  socklen_t length = 0;
  if (host.find(':') != std::string::npos) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr);
    std::memcpy(&address, &v6, length = sizeof v6);
  } else {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, host.c_str(), &v4.sin_addr);
    std::memcpy(&address, &v4, length = sizeof v4);
  }
  fd_ = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0 || connect(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw std::runtime_error(std::string{"cannot connect: "} + std::strerror(errno));
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

client::client(client&& other) noexcept
    : fd_{std::exchange(other.fd_, -1)}, last_sent_{other.last_sent_} {}

client::~client() { close(); }

void client::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void client::send(const std::string& bytes) {
  last_sent_ = steady::now();
  (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::string client::receive(std::size_t size) {
  std::string got;
  std::array<char, 65536> chunk;
  const auto deadline = steady::now() + patience;
  while (got.size() < size) {
    pollfd waiting{fd_, POLLIN, 0};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady::now()).count();
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) != 1) break;
    const ssize_t n = recv(fd_, chunk.data(), std::min(chunk.size(), size - got.size()), 0);
    if (n <= 0) break;
    got.append(chunk.data(), static_cast<std::size_t>(n));
  }
  return got;
}

bool client::echoes(const std::string& bytes) {
  send(bytes);
  return receive(bytes.size()) == bytes;
}

client::end client::wait_for_end(std::chrono::milliseconds limit) {
  std::array<char, 65536> chunk;
  const auto deadline = steady::now() + limit;
  for (;;) {
    pollfd waiting{fd_, POLLIN, 0};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady::now()).count();
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) != 1) return end::neither;
    const ssize_t n = recv(fd_, chunk.data(), chunk.size(), 0);
    if (n == 0) return end::closed;
    if (n < 0) return errno == ECONNRESET ? end::reset : end::neither;
  }
}

void client::finish_sending() { shutdown(fd_, SHUT_WR); }

void client::reset() {
  const linger hard{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close();
}

void want_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace idlewheel::test
