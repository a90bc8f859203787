// timeout_policy_test.cpp - which policies are refused, and that the text says what and why.
#include <limits>
#include <string>
#include <vector>

#include "tests/connection/support.hpp"

namespace idlewheel::connection_tests {
namespace {

std::string text(const timeout_policy& policy) {
  try {
    policy.validate();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TimeoutPolicyValidate, NamesEachNegativeLimitAndItsValue) {
  const std::vector<std::pair<std::string, timespan timeout_policy::*>> limits{
      {"handshake", &timeout_policy::handshake},
      {"header", &timeout_policy::header},
      {"body", &timeout_policy::body},
      {"request", &timeout_policy::request},
      {"keep_alive", &timeout_policy::keep_alive},
      {"idle", &timeout_policy::idle},
      {"read_idle", &timeout_policy::read_idle},
      {"message_idle", &timeout_policy::message_idle},
      {"write_stall", &timeout_policy::write_stall},
      {"idle_min", &timeout_policy::idle_min},
      {"max_pause", &timeout_policy::max_pause},
      {"ping_after", &timeout_policy::ping_after},
      {"ping_timeout", &timeout_policy::ping_timeout},
      {"ping_after_send", &timeout_policy::ping_after_send},
      {"max_age", &timeout_policy::max_age},
      {"age_grace", &timeout_policy::age_grace},
      {"linger", &timeout_policy::linger}};
  for (const auto& [name, field] : limits) {
    timeout_policy policy;
    policy.*field = -7ns;
    EXPECT_EQ(text(policy),
              "idlewheel: timeout_policy::" + name + " is 0 (off) or more, not -7 ns");
  }
}

TEST(TimeoutPolicyValidate, RefusesWhatContradictsItself) {
  struct row {
    timeout_policy policy;
    std::string names;  // "accepted", or what the text has to contain
  };
  const std::vector<row> rows{
      {{.header = 30s, .keep_alive = 75s}, "accepted"},
      {{.header = 10s, .request = 10s}, "accepted"},
      {{.header = 11s, .request = 10s}, "::header of 11000000000 ns"},
      {{.body = 11s, .request = 10s}, "::body of 11000000000 ns"},
      {{.body = 11s}, "accepted"},
      {{.idle = 60s, .ping_after = 59s, .ping_timeout = 5s}, "accepted"},
      {{.idle = 60s, .ping_after = 60s, .ping_timeout = 5s}, "::ping_after of 60000000000 ns"},
      {{.read_idle = 60s, .ping_after = 90s, .ping_timeout = 5s}, "read_idle is 60000000000 ns"},
      {{.message_idle = 10s, .ping_after = 60s, .ping_timeout = 5s},
       "message_idle is 10000000000 ns"},
      {{.keep_alive = 75s, .idle = 60s, .idle_min = 75s}, "accepted"},
      {{.idle = 60s, .idle_min = 61s}, "::idle_min of 61000000000 ns"},
      {{.ping_after = 60s}, "needs ping_timeout"},
      {{.ping_timeout = 60s}, "needs ping_after"},
      {{.ping_after_send = 60s}, "accepted"},
      {{.age_grace = 1s}, "needs max_age"},
      {{.max_age = 1h, .age_grace = 1s}, "accepted"},
      {{.age_jitter = -0.1}, "::age_jitter is 0 to 1, not -0.1"},
      {{.age_jitter = 1.5}, "::age_jitter is 0 to 1, not 1.5"},
      {{.age_jitter = std::numeric_limits<double>::quiet_NaN()}, "::age_jitter"},
      {{.missed = 0}, "::missed is 1 to 255, not 0"},
      {{.missed = 256}, "::missed is 1 to 255, not 256"},
      {{.missed = 255}, "accepted"},
      {{.min_rate_in = {.bytes_per_second = 240, .grace = 0s}}, "::min_rate_in.grace"},
      {{.min_rate_out = {.bytes_per_second = 240, .grace = 0s}}, "::min_rate_out.grace"},
      {{.min_rate_in = {.bytes_per_second = 0, .grace = -1s}}, "::min_rate_in.grace"},
      {{.min_rate_in = {.bytes_per_second = 240}}, "accepted"},
  };
  for (std::size_t i = 0; i != rows.size(); ++i)
    EXPECT_NE(text(rows[i].policy).find(rows[i].names), std::string::npos)
        << "row " << i << ": " << text(rows[i].policy);
}

}  // namespace
}  // namespace idlewheel::connection_tests
