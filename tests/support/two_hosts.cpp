#include "tests/support/two_hosts.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace idlewheel::test {
namespace {

void run(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

std::vector<std::string> inside(const std::string& name, std::vector<std::string> command) {
  command.insert(command.begin(), {IP_COMMAND, "netns", "exec", name});
  return command;
}

const std::string ip = IP_COMMAND;

}  // namespace

two_hosts::two_hosts() {
  static std::atomic<int> made{0};
  const std::string name =
      "idlewheel-" + std::to_string(getpid()) + "-" + std::to_string(made.fetch_add(1));
  server_ = name + "-server";
  client_ = name + "-client";
  run(ip + " netns add " + server_);
  run(ip + " netns add " + client_);
  // Both ends are made inside, so that the names need not be free outside.
  run(ip + " -n " + server_ + " link add eth0 type veth peer name eth0 netns " + client_);
  run(ip + " -n " + server_ + " address add " + server_address + "/24 dev eth0");
  run(ip + " -n " + client_ + " address add 10.0.0.2/24 dev eth0");
  for (const std::string& side : {server_, client_}) {
    run(ip + " -n " + side + " link set lo up");
    run(ip + " -n " + side + " link set eth0 up");
  }
}

two_hosts::~two_hosts() {
  for (const std::string& side : {server_, client_})
    if (std::system((ip + " netns delete " + side).c_str()) != 0) continue;
}

std::vector<std::string> two_hosts::at_server(std::vector<std::string> command) const {
  return inside(server_, std::move(command));
}
std::vector<std::string> two_hosts::at_client(std::vector<std::string> command) const {
  return inside(client_, std::move(command));
}

void two_hosts::cut() { run(ip + " -n " + client_ + " link set eth0 down"); }

void two_hosts::slow_down(int kilobits_per_second) {
  run(ip + " netns exec " + server_ + " tc qdisc add dev eth0 root tbf rate " +
      std::to_string(kilobits_per_second) + "kbit burst 4k latency 2s");
}

}  // namespace idlewheel::test
