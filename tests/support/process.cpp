#include "tests/support/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <stdexcept>

namespace idlewheel::test {
namespace {

using steady = std::chrono::steady_clock;

int ms_until(steady::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady::now());
  return left.count() > 0 ? static_cast<int>(left.count()) : 0;
}

}  // namespace

process::process(const std::vector<std::string>& arguments, output to, int inherited) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);

  std::array<int, 2> out{-1, -1}, err{-1, -1};
  const int made = to == output::terminal ? openpty(&out[0], &out[1], nullptr, nullptr, nullptr)
                                          : pipe(out.data());
  if (made != 0 || pipe(err.data()) != 0) throw std::runtime_error("no pipes");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    // dup2 of a descriptor to itself would leave it to close with the exec.
    if (inherited == 3) fcntl(3, F_SETFD, 0);
    if (inherited >= 0) dup2(inherited, 3);
    close_range(inherited >= 0 ? 4 : 3, ~0U, 0);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

process::~process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) close(out_);
  if (err_ >= 0) close(err_);
}

void process::signal(int number) const { kill(pid_, number); }

// Takes in more output. False at its end, and when the deadline has passed.
bool process::fill(steady::time_point deadline) {
  if (out_ < 0) return false;
  pollfd waiting{out_, POLLIN, 0};
  if (poll(&waiting, 1, ms_until(deadline)) != 1) return false;
  std::array<char, 65536> chunk;
  const ssize_t size = read(out_, chunk.data(), chunk.size());
  if (size <= 0) return false;
  buffered_.append(chunk.data(), static_cast<std::size_t>(size));
  return true;
}

std::optional<std::string> process::line_within(std::chrono::milliseconds limit) {
  const auto deadline = steady::now() + limit;
  for (;;) {
    if (const std::size_t end = buffered_.find('\n'); end != std::string::npos) {
      std::string text = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return text;
    }
    if (!fill(deadline)) return std::nullopt;
  }
}

std::optional<std::string> process::line_with(const std::string& text) {
  while (auto next = line())
    if (next->find(text) != std::string::npos) return next;
  return std::nullopt;
}

bool process::raw_until(const std::string& text) {
  const auto deadline = steady::now() + patience;
  while (buffered_.find(text) == std::string::npos)
    if (!fill(deadline)) return false;
  return true;
}

std::vector<std::string> process::rest() {
  std::vector<std::string> lines;
  while (auto next = line()) lines.push_back(*next);
  return lines;
}

void process::stop_listening() {
  close(out_);
  out_ = -1;
}

process::ending process::wait() {
  ending how;
  std::array<char, 4096> chunk;
  const auto deadline = steady::now() + patience;
  for (;;) {  // to the end of standard error, which is the end of the process
    pollfd waiting{err_, POLLIN, 0};
    if (poll(&waiting, 1, ms_until(deadline)) != 1) {
      ADD_FAILURE() << "the process does not end";
      kill(pid_, SIGKILL);
      break;
    }
    const ssize_t size = read(err_, chunk.data(), chunk.size());
    if (size <= 0) break;
    how.err.append(chunk.data(), static_cast<std::size_t>(size));
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFEXITED(status)) how.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) how.signal = WTERMSIG(status);
  return how;
}

std::size_t process::resident() const {
  std::ifstream statm{"/proc/" + std::to_string(pid_) + "/statm"};
  std::size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

server::server(std::vector<std::string> command, std::vector<std::string> arguments,
               const std::string& listen, output to)
    : process{[&] {
                command.insert(command.end(), {"--listen", listen});
                command.insert(command.end(), arguments.begin(), arguments.end());
                return command;
              }(),
              to} {
  const auto first = line_with("listening");
  if (!first) throw std::runtime_error("the server does not listen: " + wait().err);
  port_ = std::stoi(first->substr(first->rfind(':') + 1));
  host_ = listen.substr(0, listen.rfind(':'));
  if (host_.starts_with('[')) host_ = host_.substr(1, host_.size() - 2);
}

}  // namespace idlewheel::test
