// two_hosts.hpp - two network namespaces with one cable between them, which a test can cut or slow
// down. Needs root and iproute2; its addresses and ports collide with nobody's.
#pragma once
#include <string>
#include <vector>

namespace idlewheel::test {

class two_hosts {
 public:
  two_hosts();  // throws std::runtime_error when the system will not
  two_hosts(const two_hosts&) = delete;
  two_hosts& operator=(const two_hosts&) = delete;
  ~two_hosts();

  static constexpr const char* server_address = "10.0.0.1";

  // The command, to be run on that side.
  std::vector<std::string> at_server(std::vector<std::string> command) const;
  std::vector<std::string> at_client(std::vector<std::string> command) const;

  // From now on nothing passes: no FIN, no RST, no acknowledgement.
  void cut();
  // What the server sends passes with this rate.
  void slow_down(int kilobits_per_second);

 private:
  std::string server_;
  std::string client_;
};

}  // namespace idlewheel::test
