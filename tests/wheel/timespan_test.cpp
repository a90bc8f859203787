// timespan_test.cpp - every chrono duration becomes nanoseconds without overflow.
//
// Too long is cut, too short is rounded away from zero, NaN is refused.
#include "idlewheel/wheel/timespan.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <ratio>
#include <string>
#include <type_traits>

#include "tests/wheel/fixtures.hpp"

namespace idlewheel {
namespace {

using namespace std::chrono_literals;
using std::chrono::duration;
using std::chrono::nanoseconds;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

std::int64_t ns(timespan t) { return t.count_ns(); }
instant at(std::int64_t count) { return instant{nanoseconds{count}}; }

template <class Duration>
class TimespanOfEachUnit : public ::testing::Test {};
using Units =
    ::testing::Types<std::chrono::nanoseconds, std::chrono::microseconds, std::chrono::milliseconds,
                     std::chrono::seconds, std::chrono::minutes, std::chrono::hours,
                     std::chrono::days, std::chrono::weeks, std::chrono::months, std::chrono::years,
                     duration<std::int64_t, std::deca>,
                     duration<std::int64_t, std::ratio<86'400 * 365>>>;
struct NameOfUnit {
  template <class Duration>
  static std::string GetName(int) {
    return std::to_string(Duration::period::num) + "over" + std::to_string(Duration::period::den) +
           "s";
  }
};
TYPED_TEST_SUITE(TimespanOfEachUnit, Units, NameOfUnit);

TYPED_TEST(TimespanOfEachUnit, SaturatesAtBothEnds) {
  using rep = typename TypeParam::rep;
  using wide = wide_int;
  const wide unit =
      static_cast<wide>(std::ratio_divide<typename TypeParam::period, std::nano>::num);
  const wide end = static_cast<wide>(std::numeric_limits<rep>::max()) * unit;
  EXPECT_EQ(ns(TypeParam::max()), end > most ? most : static_cast<std::int64_t>(end));
  EXPECT_GT(ns(TypeParam::max()), 0);
  EXPECT_LT(ns(TypeParam::min()), 0);

  // The last count that fits and the first that does not, on both sides.
  const auto last = static_cast<rep>(most / static_cast<std::int64_t>(unit));
  for (const rep offset : {-1, 0, 1}) {
    if (last == std::numeric_limits<rep>::max() && offset > 0) continue;
    const auto count = static_cast<rep>(last + offset);
    const wide exact = static_cast<wide>(count) * unit;
    EXPECT_EQ(ns(TypeParam{count}), exact > most ? most : static_cast<std::int64_t>(exact));
    EXPECT_EQ(ns(TypeParam{static_cast<rep>(-count)}),
              -exact < least ? least : static_cast<std::int64_t>(-exact));
  }
}

TYPED_TEST(TimespanOfEachUnit, KeepsSmallCountsExactly) {
  using rep = typename TypeParam::rep;
  const std::int64_t unit = std::ratio_divide<typename TypeParam::period, std::nano>::num;
  for (const rep count : {-3, -1, 0, 1, 2, 7}) EXPECT_EQ(ns(TypeParam{count}), count * unit);
}

TEST(Timespan, ForeverIsNotNegative) {
  EXPECT_EQ(ns(std::chrono::hours::max()), most);
  EXPECT_EQ(ns(std::chrono::hours::min()), least);
  EXPECT_EQ(ns(std::chrono::seconds{most}), most);
  EXPECT_EQ(ns(std::chrono::seconds{least}), least);
  EXPECT_EQ(timespan::max(), timespan{nanoseconds::max()});
}

TEST(Timespan, UnsignedCountsSaturateToo) {
  using useconds = duration<std::uint64_t>;
  constexpr std::uint64_t top = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(ns(useconds{18'446'744'073'709'552u}), most);  // x 1000 wraps to nearly nothing
  EXPECT_EQ(ns(useconds{18'446'744'074u}), most);          // x 10^9 wraps
  EXPECT_EQ(ns(useconds{top}), most);
  EXPECT_EQ(ns(duration<std::uint64_t, std::nano>{top}), most);
  EXPECT_EQ(ns(duration<std::uint64_t, std::nano>{std::uint64_t{1} << 63}), most);
  EXPECT_EQ(ns(duration<std::uint64_t, std::nano>{(std::uint64_t{1} << 63) - 1}), most);
  EXPECT_EQ(ns(duration<std::uint64_t, std::nano>{(std::uint64_t{1} << 63) - 2}), most - 1);
  EXPECT_EQ(ns(duration<std::uint64_t, std::ratio<31'556'952>>{top}), most);
  EXPECT_EQ(ns(useconds{9}), 9'000'000'000);
  EXPECT_EQ(ns(duration<unsigned, std::milli>{4'294'967'295u}), 4'294'967'295'000'000);
}

TEST(Timespan, ShorterThanANanosecondRoundsAwayFromZero) {
  using picoseconds = duration<std::int64_t, std::pico>;
  const struct {
    std::int64_t ps, ns;
  } table[] = {{0, 0},
               {1, 1},
               {999, 1},
               {1000, 1},
               {1001, 2},
               {-1, -1},
               {-999, -1},
               {-1000, -1},
               {-1001, -2},
               {123'456, 124},
               {most, most / 1000 + 1},
               {least, least / 1000 - 1}};
  for (const auto& row : table) EXPECT_EQ(ns(picoseconds{row.ps}), row.ns) << row.ps << " ps";

  using thirds = duration<std::int64_t, std::ratio<1, 3>>;  // of a second
  EXPECT_EQ(ns(thirds{1}), 333'333'334);
  EXPECT_EQ(ns(thirds{-1}), -333'333'334);
  EXPECT_EQ(ns(thirds{3}), 1'000'000'000);
  EXPECT_EQ(ns(thirds{most}), most);
}

TEST(Timespan, FloatingPointSaturates) {
  using fseconds = duration<double>;
  EXPECT_EQ(ns(fseconds{1e300}), most);
  EXPECT_EQ(ns(fseconds{-1e300}), least);
  EXPECT_EQ(ns(fseconds{std::numeric_limits<double>::infinity()}), most);
  EXPECT_EQ(ns(fseconds{-std::numeric_limits<double>::infinity()}), least);
  EXPECT_EQ(ns(fseconds{std::numeric_limits<double>::max()}), most);
  EXPECT_EQ(ns(duration<double, std::nano>{9223372036854775808.0}), most);
  EXPECT_EQ(ns(duration<double, std::nano>{-9223372036854775808.0}), least);
  EXPECT_EQ(ns(duration<double, std::nano>{-9223372036854777856.0}), least);
  EXPECT_EQ(ns(duration<double, std::nano>{9223372036854774784.0}), 9'223'372'036'854'774'784);
  EXPECT_EQ(ns(duration<float, std::ratio<3600>>{std::numeric_limits<float>::max()}), most);
  EXPECT_EQ(ns(duration<long double>{1e4000L}), most);
}

TEST(Timespan, FloatingPointRoundsAwayFromZero) {
  using fnano = duration<double, std::nano>;
  EXPECT_EQ(ns(fnano{0.0}), 0);
  EXPECT_EQ(ns(fnano{-0.0}), 0);
  EXPECT_EQ(ns(fnano{0.25}), 1);
  EXPECT_EQ(ns(fnano{-0.25}), -1);
  EXPECT_EQ(ns(fnano{1.0}), 1);
  EXPECT_EQ(ns(fnano{1.5}), 2);
  EXPECT_EQ(ns(fnano{-1.5}), -2);
  EXPECT_EQ(ns(duration<double>{std::numeric_limits<double>::denorm_min()}), 1);
  EXPECT_EQ(ns(duration<double>{-std::numeric_limits<double>::denorm_min()}), -1);
  EXPECT_EQ(ns(duration<double>{0.5}), 500'000'000);
  EXPECT_EQ(ns(duration<float>{0.25f}), 250'000'000);
}

TEST(Timespan, NanIsRefused) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(
      text_thrown<std::invalid_argument>([&] { timespan{duration<double>{nan}}; }).find("NaN"),
      std::string::npos);
  EXPECT_THROW(timespan{duration<double>{-nan}}, std::invalid_argument);
  EXPECT_THROW((timespan{duration<float, std::nano>{std::numeric_limits<float>::quiet_NaN()}}),
               std::invalid_argument);
  EXPECT_THROW((timespan{duration<long double, std::ratio<3600>>{
                   std::numeric_limits<long double>::quiet_NaN()}}),
               std::invalid_argument);
}

TEST(Timespan, OnlyFloatingPointMayThrow) {
  static_assert(std::is_nothrow_constructible_v<timespan, std::chrono::hours>);
  static_assert(std::is_nothrow_constructible_v<timespan, duration<std::uint64_t>>);
  static_assert(!std::is_nothrow_constructible_v<timespan, duration<double>>);
}

TEST(Timespan, NothingThatIsNotADurationConverts) {
  static_assert(!std::is_convertible_v<int, timespan>);
  static_assert(!std::is_convertible_v<double, timespan>);
  static_assert(!std::is_convertible_v<timespan, int>);
  static_assert(!std::is_convertible_v<instant, timespan>);
  static_assert(std::is_convertible_v<std::chrono::minutes, timespan>);
  static_assert(std::is_convertible_v<timespan, nanoseconds>);
}

TEST(Timespan, ComparesAndConvertsAtCompileTime) {
  static_assert(timespan{}.count_ns() == 0);
  static_assert(timespan{1s} > timespan{999ms});
  static_assert(timespan{1s} == timespan{1000ms});
  static_assert(timespan{-1ns} < timespan{});
  static_assert(nanoseconds{timespan{2us}} == 2000ns);
  static_assert(timespan{std::chrono::hours::max()} == timespan::max());
  SUCCEED();
}

TEST(Later, StaysWithinTheRangeOfInstant) {
  EXPECT_EQ(later(at(5), 7ns), at(12));
  EXPECT_EQ(later(at(5), -7ns), at(-2));
  EXPECT_EQ(later(at(most), 0ns), at(most));
  EXPECT_EQ(later(at(most), 1ns), at(most));
  EXPECT_EQ(later(at(most - 1), 1ns), at(most));
  EXPECT_EQ(later(at(1), timespan::max()), at(most));
  EXPECT_EQ(later(at(0), timespan::max()), at(most));
  EXPECT_EQ(later(at(-1), timespan::max()), at(most - 1));
  EXPECT_EQ(later(at(least), -1ns), at(least));
  EXPECT_EQ(later(at(least + 1), -1ns), at(least));
  EXPECT_EQ(later(at(-1), nanoseconds::min()), at(least));
  EXPECT_EQ(later(at(0), nanoseconds::min()), at(least));
  EXPECT_EQ(later(instant::max(), timespan::max()), instant::max());
  EXPECT_EQ(later(instant::min(), timespan::max()), at(-1));
}

TEST(Between, StaysWithinTheRangeOfTimespan) {
  EXPECT_EQ(ns(between(at(5), at(12))), 7);
  EXPECT_EQ(ns(between(at(12), at(5))), -7);
  EXPECT_EQ(ns(between(at(0), at(most))), most);
  EXPECT_EQ(ns(between(at(-1), at(most))), most);
  EXPECT_EQ(ns(between(at(-1), at(most - 1))), most);
  EXPECT_EQ(ns(between(at(1), at(least))), least);
  EXPECT_EQ(ns(between(at(0), at(least))), least);
  EXPECT_EQ(ns(between(instant::min(), instant::max())), most);
  EXPECT_EQ(ns(between(instant::max(), instant::min())), least);
  EXPECT_EQ(ns(between(instant::max(), instant::max())), 0);
}

TEST(LaterAndBetween, AgreeWithWideArithmetic) {
  std::mt19937_64 rng{7};
  const auto any = [&] { return static_cast<std::int64_t>(rng()) >> static_cast<int>(rng() % 64); };
  for (int i = 0; i < 20'000; ++i) {
    const std::int64_t a = any(), b = any();
    const auto cut = [](wide_int v) {
      return v > most ? most : v < least ? least : static_cast<std::int64_t>(v);
    };
    ASSERT_EQ(later(at(a), nanoseconds{b}), at(cut(static_cast<wide_int>(a) + b))) << a << ' ' << b;
    ASSERT_EQ(ns(between(at(a), at(b))), cut(static_cast<wide_int>(b) - a)) << a << ' ' << b;
  }
}

}  // namespace
}  // namespace idlewheel
