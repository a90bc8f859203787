// client.hpp - the other end of a connection, held by a test: blocking, with patience.
#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace idlewheel::test {

using steady = std::chrono::steady_clock;

class client {
 public:
  client(const std::string& host, int port);
  client(client&& other) noexcept;
  client& operator=(client&&) = delete;
  ~client();

  int fd() const { return fd_; }
  steady::time_point last_sent() const { return last_sent_; }  // from before the call

  void send(const std::string& bytes);

  // What comes within patience: that many bytes, or fewer at the end.
  std::string receive(std::size_t size);
  // Sends and wants the same back.
  bool echoes(const std::string& bytes);

  enum class end { closed, reset, neither };
  // Waits until the server ends the connection; `neither` when it has not within `limit`.
  end wait_for_end(std::chrono::milliseconds limit);

  void finish_sending();  // FIN
  void reset();           // RST
  void close();

 private:
  int fd_ = -1;
  steady::time_point last_sent_;
};

// Raises the limit of open descriptors to what the system allows.
void want_descriptors();

}  // namespace idlewheel::test
