// tick_scale_test.cpp - the reciprocal against the dull division.
//
// floor() and ceil() have to be exact for every tick length and every instant: one tick too soon is
// an early timeout.
#include "idlewheel/wheel/tick_scale.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr std::uint64_t last_ns = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t longest = std::uint64_t{1} << 61;  // tick

instant at(std::uint64_t count) { return instant{nanoseconds{static_cast<std::int64_t>(count)}}; }

// One instant, by dull division; false, with a failure, when the scale disagrees.
::testing::AssertionResult agrees(const tick_scale& scale, std::uint64_t length,
                                  std::uint64_t count) {
  const tick down = count / length;
  const tick up = down + (count % length != 0);
  if (scale.floor(at(count)) == down && scale.ceil(at(count)) == up)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << count << " ns in ticks of " << length << ": floor " << scale.floor(at(count))
         << ", not " << down << "; ceil " << scale.ceil(at(count)) << ", not " << up;
}

// The instants where a wrong reciprocal shows: around multiples of the length, powers of two, the
// two ends.
void check_boundaries(std::uint64_t length, std::mt19937_64& rng, int random_ones) {
  const tick_scale scale{nanoseconds{static_cast<std::int64_t>(length)}};
  const auto around = [&](std::uint64_t centre) {
    for (std::uint64_t d = 0; d <= 2; ++d) {
      ASSERT_TRUE(centre < d || agrees(scale, length, centre - d));
      ASSERT_TRUE(centre > last_ns - d || agrees(scale, length, centre + d));
    }
  };
  around(0);
  around(last_ns);
  around(last_ns / length * length);
  for (unsigned bit = 0; bit < 63; ++bit) around(std::uint64_t{1} << bit);
  for (std::uint64_t k = 1; k <= 8 && k <= last_ns / length; ++k) around(k * length);
  for (int i = 0; i < random_ones; ++i) {
    const std::uint64_t count = (rng() >> 1) >> (rng() % 63);
    ASSERT_TRUE(agrees(scale, length, count));
    around(count / length * length);
  }
}

TEST(TickScale, AgreesWithDivisionOnASmallGrid) {
  for (std::uint64_t length = 1; length <= 40; ++length) {
    const tick_scale scale{nanoseconds{static_cast<std::int64_t>(length)}};
    for (std::uint64_t count = 0; count <= 2000; ++count) ASSERT_TRUE(agrees(scale, length, count));
  }
}

TEST(TickScale, AgreesWithDivisionForSmallLengthsAtLargeInstants) {
  std::mt19937_64 rng{1};
  for (std::uint64_t length = 1; length <= 300; ++length) check_boundaries(length, rng, 50);
}

TEST(TickScale, AgreesWithDivisionForOddLengths) {
  std::mt19937_64 rng{2};
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{7}, std::uint64_t{641}, std::uint64_t{1'000'000},
        std::uint64_t{10'000'000}, std::uint64_t{100'000'000}, std::uint64_t{999'999'937},
        std::uint64_t{1'000'000'000}, std::uint64_t{1} << 31, (std::uint64_t{1} << 31) - 1,
        (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + 1,
        (std::uint64_t{1} << 60) + 1, longest - 1, longest})
    check_boundaries(length, rng, 1000);
}

TEST(TickScale, AgreesWithDivisionForRandomLengths) {
  std::mt19937_64 rng{3};
  for (int i = 0; i < 2000; ++i) check_boundaries(1 + (rng() >> (3 + rng() % 61)), rng, 5);
}

TEST(TickScale, RoundsTheDeadlineUpAndNowDown) {
  const tick_scale scale{100ms};
  EXPECT_EQ(scale.ceil(instant{230ms}), 3u);
  EXPECT_EQ(scale.floor(instant{299ms}), 2u);
  EXPECT_EQ(scale.floor(instant{300ms - 1ns}), 2u);
  EXPECT_EQ(scale.floor(instant{300ms}), 3u);
  EXPECT_EQ(scale.ceil(instant{300ms}), 3u);
  EXPECT_EQ(scale.ceil(instant{300ms + 1ns}), 4u);
}

TEST(TickScale, TimesBeforeZeroAreTickZero) {
  for (const auto length : {1ns, 3ns, 1'000'000ns}) {
    const tick_scale scale{length};
    for (const instant t : {instant{-1ns}, instant{-1h}, instant::min(), instant{}}) {
      EXPECT_EQ(scale.floor(t), 0u);
      EXPECT_EQ(scale.ceil(t), 0u);
    }
  }
}

TEST(TickScale, BeginsIsTheInverseAndSaturates) {
  const tick_scale scale{100ms};
  EXPECT_EQ(scale.begins(0), instant{});
  EXPECT_EQ(scale.begins(3), instant{300ms});
  EXPECT_EQ(scale.begins(never), instant::max());
  EXPECT_EQ(scale.begins(tick{1} << 63), instant::max());
  const tick last = last_ns / 100'000'000;
  EXPECT_EQ(scale.begins(last), at(last * 100'000'000));
  EXPECT_EQ(scale.begins(last + 1), instant::max());      // fits in 64 bits, not in an instant
  EXPECT_EQ(scale.begins(2 * last + 3), instant::max());  // wraps 64 bits

  const tick_scale finest{1ns};
  EXPECT_EQ(finest.begins(last_ns), instant::max());
  EXPECT_EQ(finest.begins(last_ns - 1), at(last_ns - 1));
  EXPECT_EQ(finest.begins(last_ns + 1), instant::max());

  std::mt19937_64 rng{4};
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t length = 1 + (rng() >> (3 + rng() % 61));
    const tick_scale any{nanoseconds{static_cast<std::int64_t>(length)}};
    const tick n = rng() >> (rng() % 64);
    const auto exact = static_cast<wide_uint>(n) * length;
    ASSERT_EQ(any.begins(n), exact > last_ns ? instant::max() : at(static_cast<tick>(exact)));
    if (exact <= last_ns) {
      ASSERT_EQ(any.floor(any.begins(n)), n);
      ASSERT_EQ(any.ceil(any.begins(n)), n);
    }
  }
}

TEST(TickScale, KeepsItsLength) {
  EXPECT_EQ(tick_scale{1ns}.length(), timespan{1ns});
  EXPECT_EQ(tick_scale{100ms}.length(), timespan{100ms});
  EXPECT_EQ(tick_scale{nanoseconds{INT64_C(1) << 61}}.length().count_ns(), INT64_C(1) << 61);
}

TEST(TickScale, RefusesALengthOutOfRangeAndSaysIt) {
  const auto text = [](timespan length) {
    return text_thrown<std::invalid_argument>([&] { tick_scale{length}; });
  };
  EXPECT_NE(text(0ns).find("not 0 ns"), std::string::npos);
  EXPECT_NE(text(-1ns).find("not -1 ns"), std::string::npos);
  EXPECT_NE(text(-5ms).find("not -5000000 ns"), std::string::npos);
  EXPECT_NE(text(std::chrono::hours::min()).find("not -9223372036854775808 ns"), std::string::npos);
  EXPECT_NE(text(nanoseconds{(INT64_C(1) << 61) + 1}).find("not 2305843009213693953 ns"),
            std::string::npos);
  EXPECT_NE(text(std::chrono::hours::max()).find("not 9223372036854775807 ns"), std::string::npos);
  EXPECT_NO_THROW(tick_scale{1ns});
  EXPECT_NO_THROW(tick_scale{nanoseconds{INT64_C(1) << 61}});
}

TEST(TickScale, TheLongestTick) {
  const tick_scale scale{nanoseconds{INT64_C(1) << 61}};
  EXPECT_EQ(scale.floor(instant::max()), 3u);
  EXPECT_EQ(scale.ceil(instant::max()), 4u);
  EXPECT_EQ(scale.floor(at(longest - 1)), 0u);
  EXPECT_EQ(scale.ceil(at(1)), 1u);
  EXPECT_EQ(scale.begins(3), at(3 * longest));
  EXPECT_EQ(scale.begins(4), instant::max());
}

}  // namespace
}  // namespace idlewheel
