// The race checker names each planted mistake in every order of threads, and nothing in kernels without one.
#include <gmock/gmock.h>

#include <string>

#include "gpu/gpu.h"
#include "race/planted.h"

namespace hearth::gpu {
namespace {

struct Mistake {
  std::string name;
  void (*launch)(void* stream, float* out, bool wrong);
  std::string said;
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class RaceChecker : public EmulatorTest, public testing::WithParamInterface<Mistake> {
 protected:
  static std::string said_of(bool wrong) {
    Gpu gpu;
    float* out = gpu.room<float>(64);
    GetParam().launch(gpu.handle(), out, wrong);
    try {
      gpu.stream().synchronize();
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_P(RaceChecker, NamesTheMistakeAndNothingElse) {
  in_every_order([] {
    EXPECT_THAT(said_of(true), testing::ContainsRegex(GetParam().said));
    EXPECT_EQ(said_of(false), "");
  });
}

INSTANTIATE_TEST_SUITE_P(
    Planted, RaceChecker,
    testing::Values(Mistake{"neighbors", planted::neighbors, "race|nobody has written"},
                    Mistake{"rounds", planted::rounds, "race"}, Mistake{"lanes", planted::lanes, "race"},
                    Mistake{"blocks", planted::blocks, "race of two writes"},
                    Mistake{"unset", planted::unset, "nobody has written"},
                    Mistake{"global_bounds", planted::global_bounds, "write out of bounds"},
                    Mistake{"shared_bounds", planted::shared_bounds, "read out of bounds"},
                    Mistake{"wide", planted::wide, "race|nobody has written"}),
    [](const testing::TestParamInfo<Mistake>& info) { return info.param.name; });

}  // namespace
}  // namespace hearth::gpu
