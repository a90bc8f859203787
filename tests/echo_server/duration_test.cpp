// duration_test.cpp - what is a duration on the command line, and what is not.
#include "examples/common/duration.hpp"

#include <gtest/gtest.h>

namespace example {
namespace {

using std::chrono::nanoseconds;

struct accepted {
  const char* name;
  const char* text;
  nanoseconds value;
};
class Accepted : public testing::TestWithParam<accepted> {};

TEST_P(Accepted, Case195_ANumberWithAUnitIsThatLong) {
  const auto parsed = parse_duration(GetParam().text);
  ASSERT_TRUE(std::holds_alternative<nanoseconds>(parsed)) << std::get<std::string>(parsed);
  EXPECT_EQ(std::get<nanoseconds>(parsed), GetParam().value);
}

using namespace std::chrono_literals;
INSTANTIATE_TEST_SUITE_P(Durations, Accepted,
                         testing::Values(accepted{"Microseconds", "5us", 5us},
                                         accepted{"Milliseconds", "5ms", 5ms},
                                         accepted{"Seconds", "30s", 30s},
                                         accepted{"Minutes", "5m", 5min},
                                         accepted{"Hours", "1h", 1h}, accepted{"Zero", "0s", 0s},
                                         accepted{"LeadingZeros", "007s", 7s},
                                         accepted{"MoreThan31Bits", "2147483648ms", 2147483648ms},
                                         accepted{"MoreThan24Days", "10000000s", 10000000s},
                                         accepted{"TheLongestInUs", "9223372036854775us",
                                                  nanoseconds{9223372036854775000}},
                                         accepted{"TheLongestInHours", "2562047h", 2562047h}),
                         [](const auto& i) { return i.param.name; });

struct refused {
  const char* name;
  const char* text;
  const char* why;
};
class Refused : public testing::TestWithParam<refused> {};

TEST_P(Refused, Case195_AnythingElseSaysWhy) {
  const auto parsed = parse_duration(GetParam().text);
  ASSERT_TRUE(std::holds_alternative<std::string>(parsed))
      << std::get<nanoseconds>(parsed).count() << " ns";
  EXPECT_NE(std::get<std::string>(parsed).find(GetParam().why), std::string::npos)
      << std::get<std::string>(parsed);
}

INSTANTIATE_TEST_SUITE_P(
    Durations, Refused,
    testing::Values(refused{"Empty", "", "not a number"}, refused{"OnlyAUnit", "s", "not a number"},
                    refused{"NoUnit", "5", "lacks a unit"},
                    refused{"ZeroWithoutUnit", "0", "lacks a unit"},
                    refused{"Case28_Days", "25d", "unknown unit 'd'"},
                    refused{"CapitalUnit", "5S", "unknown unit 'S'"},
                    refused{"Space", "5 s", "unknown unit ' s'"},
                    refused{"TrailingSpace", "5s ", "unknown unit"},
                    refused{"LeadingSpace", " 5s", "not a number"},
                    refused{"TwoUnits", "1m30s", "unknown unit"},
                    refused{"Fraction", "1.5s", "unknown unit"},
                    refused{"Plus", "+5s", "not a number"}, refused{"Negative", "-1s", "negative"},
                    refused{"NegativeWithoutUnit", "-1", "negative"},
                    refused{"Hex", "0x5s", "unknown unit"}, refused{"Nan", "nans", "not a number"},
                    refused{"Case21_JustTooLong", "9223372036854776us", "too long"},
                    refused{"Case21_JustTooLongInHours", "2562048h", "too long"},
                    refused{"Case30_OverflowsWhenScaled", "18446744073709552s", "too long"},
                    refused{"MoreThan64Bits", "99999999999999999999s", "too long"}),
    [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace example
