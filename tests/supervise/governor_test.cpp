#include "supervise/governor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <deque>
#include <random>

namespace hearth::supervise {
namespace {

using system::GpuReading;
using testing::HasSubstr;

/// A GPU of 300 W: a die that answers in a second and a half, a cooler that takes minutes; read once a
/// second, 2 s late, with a noise of 1 K. It computes steps of `step_seconds` with the governor's gaps
/// between them.
class Simulation {
 public:
  struct Options {
    double room = 35;              ///< C
    double air_resistance = 0.15;  ///< K/W from the cooler to the room; a clogged fan doubles it
    double step_seconds = 0.5;
    GovernorOptions governor = {.limit = 105};
    unsigned seed = 1;
  };
  explicit Simulation(const Options& options)
      : options_(options),
        governor_(options.governor),
        random_(options.seed),
        die_(options.room),
        cooler_(options.room) {}

  void run(double seconds) {
    for (const double end = now_ + seconds; now_ < end; now_ += kTick) {
      tick();
      if (now_ >= next_sample_) sample();
    }
  }
  void clog(double air_resistance) { options_.air_resistance = air_resistance; }
  const Governor& governor() const { return governor_; }
  double hottest() const { return hottest_; }
  double die() const { return die_; }
  double lost_share() const { return idle_ / now_; }
  double mean_power() const { return joules_ / now_; }
  int num_reversals() const { return num_reversals_; }
  int num_pauses() const { return num_pauses_; }
  const std::string& reason() const { return reason_; }

 private:
  static constexpr double kTick = 0.02, kPower = 300, kIdlePower = 30;

  void tick() {
    constexpr double kDie = 15, kCooler = 600, kResistance = 0.1;
    if (until_next_ <= 0 && !governor_.paused()) {
      const double share = governor_.idle_share();
      computing_ = options_.step_seconds;
      until_next_ = computing_ / (1 - share);
    }
    const double power = computing_ > 0 ? kPower : kIdlePower;
    if (computing_ <= 0) idle_ += kTick;
    computing_ -= kTick;
    until_next_ -= kTick;
    const double flow = (die_ - cooler_) / kResistance;
    die_ += kTick * (power - flow) / kDie;
    cooler_ += kTick * (flow - (cooler_ - options_.room) / options_.air_resistance) / kCooler;
    hottest_ = std::max(hottest_, die_);
    joules_ += kTick * power;
    power_ += (power - power_) * kTick;
    delayed_.push_back(die_);
    if (delayed_.size() > 2 / kTick) delayed_.pop_front();
  }
  void sample() {
    next_sample_ += 1;
    GpuReading reading;
    reading.junction = static_cast<float>(delayed_.front() + noise_(random_));
    reading.power = static_cast<float>(power_);
    const double share = governor_.idle_share();
    const bool paused = governor_.paused();
    governor_.update({&reading, 1}, 1, options_.step_seconds / (1 - share));
    const double change = governor_.idle_share() - share;
    if (change * last_change_ < 0) ++num_reversals_;
    if (change != 0) last_change_ = change;
    if (governor_.paused() && !paused) ++num_pauses_;
    if (!governor_.reason().empty()) reason_ = governor_.reason();
  }

  Options options_;
  Governor governor_;
  std::mt19937 random_;
  std::normal_distribution<double> noise_{0, 1};
  std::deque<double> delayed_;
  double die_, cooler_, power_ = 0, now_ = 0, next_sample_ = 1, computing_ = 0, until_next_ = 0;
  double hottest_ = 0, idle_ = 0, joules_ = 0, last_change_ = 0;
  int num_reversals_ = 0, num_pauses_ = 0;
  std::string reason_;
};

/// In an hour: turns of the share, which the noise makes and a band holds down.
constexpr int kMostReversals = 100;

TEST(Governor, LosesNothingWhereItIsCool) {
  for (const double room : {15.0, 22.0}) {
    Simulation machine({.room = room});
    machine.run(3600);
    EXPECT_LT(machine.lost_share(), 0.02) << room;
    EXPECT_EQ(machine.num_pauses(), 0);
  }
}

TEST(Governor, HoldsTheLimitWithAHotRoomAndACloggedFan) {
  for (const Simulation::Options& options :
       {Simulation::Options{.room = 40}, Simulation::Options{.room = 35, .air_resistance = 0.3},
        Simulation::Options{.room = 40, .air_resistance = 0.3, .step_seconds = 0.1},
        Simulation::Options{.room = 35, .air_resistance = 0.2, .step_seconds = 2},
        Simulation::Options{.room = 30, .air_resistance = 0.25, .step_seconds = 10},
        Simulation::Options{.room = 30, .step_seconds = 20, .governor = {.limit = 95}}}) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      Simulation::Options seeded = options;
      seeded.seed = seed;
      SCOPED_TRACE(fmt::format("room {}, air {}, step {}, seed {}", seeded.room, seeded.air_resistance,
                               seeded.step_seconds, seed));
      Simulation machine(seeded);
      machine.run(3600);
      EXPECT_LT(machine.hottest(), options.governor.limit);
      EXPECT_LT(machine.num_reversals(), kMostReversals);
      EXPECT_EQ(machine.num_pauses(), 0);
      // It does not slow more than it must: the limit is near.
      EXPECT_GT(machine.hottest(), options.governor.limit - 15);
    }
  }
}

TEST(Governor, AFanThatClogsWhileItRuns) {
  Simulation machine({.room = 30});
  machine.run(1800);
  machine.clog(0.3);
  machine.run(3600);
  EXPECT_LT(machine.hottest(), 105);
  EXPECT_LT(machine.num_reversals(), kMostReversals);
  EXPECT_GT(machine.governor().idle_share(), 0.3);
  EXPECT_THAT(machine.reason(), HasSubstr("GPU 0 () has "));
  EXPECT_THAT(machine.reason(), HasSubstr(" C, limit 105 C"));
  // And is cleaned.
  machine.clog(0.1);
  machine.run(1200);
  EXPECT_EQ(machine.governor().idle_share(), 0);
}

TEST(Governor, PausesWhereTheLargestGapIsTooLittle) {
  Simulation machine({.room = 30, .air_resistance = 1.5});
  machine.run(7200);
  EXPECT_GT(machine.num_pauses(), 0);
  EXPECT_LT(machine.num_pauses(), 2 * 7200 / GovernorOptions{}.min_pause_seconds);
  EXPECT_LT(machine.hottest(), 105);
  machine.clog(0.1);
  machine.run(1800);
  EXPECT_FALSE(machine.governor().paused());
  EXPECT_EQ(machine.governor().idle_share(), 0);
}

TEST(Governor, HoldsAPower) {
  for (const double step_seconds : {0.5, 3.0}) {
    for (const double limit : {250.0, 150.0}) {
      Simulation machine({.air_resistance = 0.05,
                          .step_seconds = step_seconds,
                          .governor = {.limit = 105, .power_limit = limit}});
      machine.run(3600);
      EXPECT_LT(machine.mean_power(), limit);
      EXPECT_GT(machine.mean_power(), 0.8 * limit);
      EXPECT_LT(machine.num_reversals(), kMostReversals);
      EXPECT_THAT(machine.reason(), HasSubstr(" W, limit "));
    }
  }
}

GpuReading reading_of(float junction, float limit = GpuReading::kUnknown) {
  GpuReading reading{.address = system::gpu_address("0000:03:00.0")};
  reading.junction = junction;
  reading.junction_limit = limit;
  return reading;
}

TEST(Governor, TheLimitIsTheGpusOwnUnlessThereIsOne) {
  EXPECT_FALSE(excess_of(reading_of(80), 0));
  EXPECT_FALSE(excess_of(GpuReading{}, 90));
  EXPECT_DOUBLE_EQ(excess_of(reading_of(80, 110), 0)->kelvin, 80 - 105);
  EXPECT_DOUBLE_EQ(excess_of(reading_of(80, 110), 90)->kelvin, 80 - 90);
  GpuReading hot_memory = reading_of(80, 110);
  hot_memory.memory = 106;
  hot_memory.memory_limit = 108;
  EXPECT_DOUBLE_EQ(excess_of(hot_memory, 0)->kelvin, 3);
  EXPECT_STREQ(excess_of(hot_memory, 0)->sensor, " in its memory");
}

TEST(Governor, DoesNothingWithoutReadings) {
  Governor governor({});
  for (int i = 0; i < 100; ++i) governor.update({}, 1, 1);
  EXPECT_EQ(governor.idle_share(), 0);
  const GpuReading blind = reading_of(GpuReading::kUnknown, 110);
  for (int i = 0; i < 100; ++i) governor.update({&blind, 1}, 1, 1);
  EXPECT_EQ(governor.idle_share(), 0);
}

TEST(Governor, TheHottestGpuDecides) {
  Governor governor({});
  const GpuReading readings[] = {reading_of(60, 110), reading_of(112, 110)};
  for (int i = 0; i < 3; ++i) governor.update(readings, 1, 1);
  EXPECT_GT(governor.idle_share(), 0);
  EXPECT_EQ(governor.reason(), "GPU 1 (0000:03:00.0) has 112 C, limit 105 C");
}

TEST(Governor, ASensorThatGoesEndsAPause) {
  Governor governor({});
  const GpuReading hot = reading_of(130, 110), blind = reading_of(GpuReading::kUnknown);
  for (int i = 0; i < 60; ++i) governor.update({&hot, 1}, 1, 1);
  EXPECT_TRUE(governor.paused());
  governor.update({&blind, 1}, 1, 1);
  EXPECT_FALSE(governor.paused());
}

}  // namespace
}  // namespace hearth::supervise
