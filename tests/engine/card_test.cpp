// Training on an emulated card: the same course as on the processor, and clear words where the card is the
// reason.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "engine/card_course.h"

namespace hearth::engine {
namespace {

TEST_F(CardTraining, TakesTheCourseOfTheProcessor) {
  for (EngineOptions options : {pictures(), text()}) {
    for (const int64_t accumulate : {1, 2}) {
      options.accumulate = accumulate;
      Course here(options), there(on_card(options));
      EXPECT_LT(there.engine().train_program().num_host_nodes(),
                std::ssize(there.engine().train_program().graph().nodes));
      for (int64_t step = 0; step < kSteps; ++step) {
        const StepResult want = here.step(), got = there.step();
        ASSERT_NEAR(got.loss, want.loss, 1e-4 * want.loss) << "step " << step;
        ASSERT_NEAR(got.grad_norm, want.grad_norm, 1e-3 * want.grad_norm) << "step " << step;
      }
      EXPECT_NEAR(there.engine().evaluate(there.batch()), here.engine().evaluate(here.batch()), 1e-3);
    }
  }
}

TEST_F(CardTraining, LeavesProductsToALibraryThatIsFaster) {
  emu::cards() = {{.library = emu::CardSettings::Library::right}};
  const TemporaryFolder folder;
  for (EngineOptions options : {pictures(), text()}) {
    Course here(options);
    options.products = folder.path() / "products.json";
    Course there(on_card(options));
    int num_left = 0;
    for (const ir::Node& node : there.engine().train_program().graph().nodes)
      num_left += node.attrs.text_or("way", "") == "library" ? 1 : 0;
    EXPECT_GT(num_left, 0);
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepResult want = here.step(), got = there.step();
      ASSERT_NEAR(got.loss, want.loss, 1e-4 * want.loss) << "step " << step;
      ASSERT_NEAR(got.grad_norm, want.grad_norm, 1e-3 * want.grad_norm) << "step " << step;
    }
  }
}

TEST_F(CardTraining, StateComesAndGoesBitForBit) {
  Course whole(on_card(text())), rest(on_card(text()));
  const auto kept = whole.state_after(3);
  rest.state_after(3);
  const double want = whole.step().loss;
  std::ranges::fill(rest.engine().state(), std::byte{0});
  EXPECT_NE(rest.engine().evaluate(whole.batch()), want) << "what the host writes reaches the card";
  std::ranges::copy(kept, rest.engine().state().begin());
  EXPECT_EQ(rest.step().loss, want);
  EXPECT_TRUE(std::ranges::equal(rest.engine().state(), whole.engine().state()));
}

TEST_F(CardTraining, NamesTheFirstThatIsNotFinite) {
  Course course(on_card(pictures()));
  course.engine().values("fc1.weight")[3] = std::nanf("");
  EXPECT_THAT(course.engine().find_not_finite(course.batch(), 0, 0), testing::HasSubstr("fc1.weight"));
}

TEST_F(CardTraining, APlanThatIsTooLargeIsRefusedBeforeTheFirstStep) {
  emu::cards() = {{.memory_bytes = 100000}};
  try {
    Course course(on_card(text()));
    ADD_FAILURE() << "nothing was refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("expected a plan of at most 97.7 KiB on emulated card 0"));
  }
}

TEST_F(CardTraining, AFaultOfTheCardIsTheCards) {
  emu::cards() = {{.faulty_launch = 30}};
  Course course(on_card(text()));
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) course.step();
      },
      gpu::DeviceError);
}

}  // namespace
}  // namespace hearth::engine
