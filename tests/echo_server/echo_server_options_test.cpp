// echo_server_options_test.cpp - bad input gets one line that names what and why, and a status.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "tests/echo_server/echo_server.hpp"

namespace idlewheel::test {
namespace {

struct bad_option {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<std::string> mentioned;
};
class BadOption : public testing::TestWithParam<bad_option> {};

TEST_P(BadOption, IsRefusedWithOneLineThatNamesItAndStatus2) {
  std::vector<std::string> arguments{ECHO_SERVER};
  arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  process server{arguments};
  EXPECT_TRUE(server.rest().empty()) << "standard output is for events";
  const auto how = server.wait();
  EXPECT_EQ(how.exit_status, 2);
  EXPECT_EQ(std::count(how.err.begin(), how.err.end(), '\n'), 1) << how.err;
  for (const std::string& part : GetParam().mentioned)
    EXPECT_NE(how.err.find(part), std::string::npos) << part << " in: " << how.err;
}

INSTANTIATE_TEST_SUITE_P(
    Options, BadOption,
    testing::Values(
        bad_option{"IdleWithoutUnit", {"--idle", "30"}, {"--idle", "'30'", "lacks a unit"}},
        bad_option{"IdleUnknownUnit", {"--idle", "5d"}, {"--idle", "'5d'", "unknown unit"}},
        bad_option{"IdleNegative", {"--idle=-1s"}, {"--idle", "'-1s'", "negative"}},
        bad_option{"IdleNegativeApart", {"--idle", "-1s"}, {"--idle", "'-1s'", "negative"}},
        bad_option{
            "IdleOverflow", {"--idle", "99999999999h"}, {"--idle", "99999999999h", "too long"}},
        bad_option{"IdleEmpty", {"--idle", ""}, {"--idle", "''"}},
        bad_option{"IdleMissing", {"--idle"}, {"--idle"}},
        bad_option{"TickZero", {"--tick", "0ms"}, {"--tick", "'0ms'", "too short"}},
        bad_option{"TickBelowAMillisecond", {"--tick", "999us"}, {"--tick", "'999us'", "1ms"}},
        bad_option{"SlotsZero", {"--slots", "0"}, {"--slots", "0"}},
        bad_option{"SlotsTooMany", {"--slots", "99999999"}, {"--slots", "99999999"}},
        bad_option{"SlotsNegative", {"--slots=-1"}, {"--slots", "-1"}},
        bad_option{"SlotsNoNumber", {"--slots", "many"}, {"--slots", "many"}},
        bad_option{"RefreshUnknown", {"--refresh", "maybe"}, {"--refresh", "'maybe'", "relink"}},
        bad_option{"MaxConnectionsZero", {"--max-connections", "0"}, {"--max-connections", "0"}},
        bad_option{"LogUnknown", {"--log", "xml"}, {"--log", "'xml'", "json"}},
        bad_option{"ListenNoPort", {"--listen", "127.0.0.1"}, {"--listen", "'127.0.0.1'"}},
        bad_option{"ListenPortTooLarge", {"--listen", "127.0.0.1:65536"}, {"--listen", "65536"}},
        bad_option{"ListenPortNegative", {"--listen", "127.0.0.1:-1"}, {"--listen", "-1"}},
        bad_option{"ListenNoAddress", {"--listen", "nowhere:80"}, {"--listen", "'nowhere:80'"}},
        bad_option{"ListenIpv6WithoutBrackets", {"--listen", "::1:80"}, {"--listen", "'::1:80'"}},
        bad_option{"UnknownOption", {"--ide", "5s"}, {"--ide"}},
        bad_option{"StrayArgument", {"stray"}, {"stray"}}),
    [](const auto& i) { return i.param.name; });

TEST(EchoServerOptions, HelpAndVersionGoToStandardOutput) {
  process help{{ECHO_SERVER, "--help"}};
  const auto lines = help.rest();
  EXPECT_EQ(help.wait().exit_status, 0);
  for (const char* option : {"--listen", "--idle", "--tick", "--slots", "--refresh",
                             "--max-connections", "--log", "--quiet", "--help", "--version"})
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(option) != std::string::npos;
    })) << option;

  process version{{ECHO_SERVER, "--version"}};
  EXPECT_TRUE(version.line().value_or("").starts_with("echo_server "));
  EXPECT_EQ(version.wait().exit_status, 0);
}

TEST(EchoServerOptions, APortInUseIsOneLineAndStatus1) {
  echo_server first{{}};
  process second{{ECHO_SERVER, "--listen", "127.0.0.1:" + std::to_string(first.port())}};
  EXPECT_TRUE(second.rest().empty());
  const auto how = second.wait();
  EXPECT_EQ(how.exit_status, 1);
  EXPECT_EQ(std::count(how.err.begin(), how.err.end(), '\n'), 1) << how.err;
  EXPECT_NE(how.err.find(std::to_string(first.port())), std::string::npos) << how.err;
  EXPECT_NE(how.err.find("in use"), std::string::npos) << how.err;
}

TEST(EchoServerOptions, AnAddressThatIsNotOursIsOneLineAndStatus1) {
  process server{{ECHO_SERVER, "--listen", "192.0.2.1:0"}};  // TEST-NET-1: nobody's
  EXPECT_TRUE(server.rest().empty());
  const auto how = server.wait();
  EXPECT_EQ(how.exit_status, 1);
  EXPECT_EQ(std::count(how.err.begin(), how.err.end(), '\n'), 1) << how.err;
  EXPECT_NE(how.err.find("192.0.2.1:0"), std::string::npos) << how.err;
}

}  // namespace
}  // namespace idlewheel::test
