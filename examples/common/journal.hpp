// journal.hpp - what the server says on standard output: a line or a JSON object an event.
//
// Lines are collected and written once a turn of the loop, before it waits: a system call a line
// would be most of the work when thousands of connections close together.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "command_line.hpp"

namespace example {

struct closing {
  std::string reason;  // idle, peer closed, peer reset, shutdown, error ...
  std::chrono::nanoseconds silent;
  std::optional<std::chrono::nanoseconds> late;  // of a timeout
  std::uint64_t rx = 0;
  std::uint64_t tx = 0;
};

struct totals {
  std::uint64_t accepted = 0;
  std::uint64_t open = 0;
  std::map<std::string, std::uint64_t> closed;  // by reason
  std::uint64_t refreshes = 0;
  std::uint64_t relinks = 0;
  std::chrono::nanoseconds latest_close{0};
  std::map<std::string, std::uint64_t> would_close;  // by reason, in a dry run

  totals& operator+=(const totals& other);
};

class journal {
 public:
  journal(std::string program, log_format format, bool quiet);

  void listening(const std::string& address);
  void opened(std::uint64_t id, const std::string& peer);
  void would_close(std::uint64_t id, const std::string& peer, const std::string& reason,
                   std::chrono::nanoseconds late);  // a dry run
  void closed(std::uint64_t id, const std::string& peer, const closing& how);
  void problem(const std::string& what);  // on stderr
  void summary(const totals& all);

  // A terminal gets a line that is kept up to date; anything else gets none.
  bool live() const { return terminal_; }
  void status(const totals& all, double refreshes_per_second);

  void flush();

 private:
  void line(const std::string& text);

  std::string program_;
  log_format format_;
  bool quiet_;
  bool terminal_;
  std::string pending_;
  std::string status_;
};

}  // namespace example
