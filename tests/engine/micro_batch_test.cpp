// Micro-batches name the inputs of the objective, in any order; a wrong name is an error that quotes it.
#include "engine/micro_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "gpu_course.h"

namespace hearth::engine {
namespace {

using testing::HasSubstr;

constexpr int64_t kSizes[] = {kBatch};

class MicroBatches : public GpuTraining {
 protected:
  MicroBatches() : engine_(images(), {}, kSizes) { engine_.initialize(); }

  std::string refusal(const MicroBatch& batch) {
    try {
      engine_.evaluate(batch);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "no error";
  }

  std::vector<float> images_ = std::vector<float>(kBatch * 8 * 8 * 3 + kSlack, 0.5F);
  std::vector<int32_t> labels_ = std::vector<int32_t>(kBatch + kSlack, 3);
  Engine engine_;
};

TEST_F(MicroBatches, AreBoundByNameInAnyOrder) {
  const data::NamedArray images{"images", images_.data()}, labels{"labels", labels_.data()};
  const double want = engine_.evaluate({{images, labels}, kBatch});
  EXPECT_EQ(engine_.evaluate({{labels, images}, kBatch}), want);
  MicroBatch added({labels}, kBatch);
  added.add(images);
  EXPECT_EQ(engine_.evaluate(added), want);
  EXPECT_EQ(added.array<float>("images"), images_.data());
}

TEST_F(MicroBatches, AreRefusedIfAnInputIsMissingOrUnknown) {
  const data::NamedArray images{"images", images_.data()}, labels{"labels", labels_.data()};
  EXPECT_THAT(refusal({{}, kBatch}), HasSubstr("no array for the input 'images'"));
  EXPECT_THAT(refusal({{images}, kBatch}), HasSubstr("no array for the input 'labels'"));
  EXPECT_THAT(refusal({{images, labels, {"masks", labels_.data()}}, kBatch}),
              HasSubstr("the objective has no input 'masks'"));
  EXPECT_EQ(refusal({{images, labels}, kBatch}), "no error");
  EXPECT_THAT(refusal({{images}, kBatch}), HasSubstr("no array for the input 'labels'"))
      << "names are checked again if they change";
}

}  // namespace
}  // namespace hearth::engine
