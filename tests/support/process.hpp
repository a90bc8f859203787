// process.hpp - a program under test: started, spoken to by signals, read line by line, and ended.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace idlewheel::test {

using namespace std::chrono_literals;

// Long enough for a busy machine; no test waits for it unless it fails.
inline constexpr std::chrono::seconds patience{20};

enum class output { pipe, terminal };

class process {
 public:
  // `inherited` is its descriptor 3, when there is one.
  explicit process(const std::vector<std::string>& arguments, output to = output::pipe,
                   int inherited = -1);
  process(const process&) = delete;
  process& operator=(const process&) = delete;
  ~process();  // kills it when it still runs

  pid_t pid() const { return pid_; }
  void signal(int number) const;

  // The next line of standard output, without its end; empty at the end or when patience has run
  // out.
  std::optional<std::string> line() { return line_within(patience); }
  std::optional<std::string> line_within(std::chrono::milliseconds limit);

  // Reads on until a line contains `text`, and returns it.
  std::optional<std::string> line_with(const std::string& text);

  // Raw bytes of standard output until `text` appears in them.
  bool raw_until(const std::string& text);

  // Everything that is left on standard output, up to its end.
  std::vector<std::string> rest();

  // Closes our end: the program then writes to nobody.
  void stop_listening();

  struct ending {
    int exit_status = -1;  // -1: by a signal
    int signal = 0;
    std::string err;  // what it wrote on standard error
  };
  // Waits for the end. pre: it is about to end; fails the test and kills it otherwise.
  ending wait();

  // Resident memory in bytes.
  std::size_t resident() const;

 private:
  bool fill(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::string buffered_;
};

// One of our servers, on a port that the system picked, with these arguments.
class server : public process {
 public:
  server(const std::string& program, std::vector<std::string> arguments,
         const std::string& listen = "127.0.0.1:0", output to = output::pipe)
      : server{std::vector{program}, std::move(arguments), listen, to} {}
  // The program with what runs it.
  server(std::vector<std::string> command, std::vector<std::string> arguments,
         const std::string& listen = "127.0.0.1:0", output to = output::pipe);
  const std::string& host() const { return host_; }
  int port() const { return port_; }

 private:
  std::string host_;
  int port_ = 0;
};

}  // namespace idlewheel::test
