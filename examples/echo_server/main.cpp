// echo_server - sends back what it receives and closes connections that fall silent.
#include <fmt/core.h>
#include <uv.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "options.hpp"
#include "server.hpp"

int main(int argc, char** argv) {
  echo::options options;
  if (const auto status = echo::parse(argc, argv, options)) return *status;
  std::signal(SIGPIPE, SIG_IGN);  // a peer that has gone is an error of its connection

  uv_loop_t loop;
  uv_loop_init(&loop);
  int exit_status = 0;
  try {
    echo::server server{&loop, options};
    if (const int status = server.listen(); status < 0) {
      fmt::print(stderr, "echo_server: cannot listen on {}: {}\n", options.listen,
                 uv_strerror(status));
      exit_status = 1;
      server.shut_down();
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    if (exit_status == 0) server.print_summary();
  } catch (const std::exception& wrong) {
    fmt::print(stderr, "echo_server: {}\n", wrong.what());
    return 1;
  }
  uv_run(&loop, UV_RUN_DEFAULT);
  uv_loop_close(&loop);
  return exit_status;
}
