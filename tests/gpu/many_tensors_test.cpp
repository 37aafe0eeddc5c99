// Ops whose kernel takes many nodes: more than one launch's table holds give the same bits as one by one.
#include "ops/many_tensors.h"

#include "gpu/card.h"
#include "op_sample.h"

namespace hearth::ops {
namespace {

constexpr size_t kNodes = 130;

class ManyNodes : public OpSample {
 protected:
  ~ManyNodes() override { emu::settings() = {}; }

  /// Buffers of every node on a card: its own numbers, but the scalars of the first.
  struct Buffers {
    std::vector<void*> in, out;
  };
  Buffers fill(gpu::Card& card) const {
    Buffers buffers;
    PhiloxSequence random(29, 1);
    for (size_t n = 0; n < kNodes; ++n) {
      std::vector<void*> in;
      for (size_t k = 0; k < sample_.in.size(); ++k) in.push_back(input(card, random, k, buffers));
      for (const int written : op_->writes) {
        const auto k = static_cast<size_t>(written);
        if (k < in.size() && in[k] != nullptr) buffers.out.push_back(in[k]);
      }
      buffers.in.insert(buffers.in.end(), in.begin(), in.end());
    }
    return buffers;
  }
  std::vector<std::vector<std::byte>> results(gpu::Card& card, const Buffers& buffers) const {
    std::vector<std::vector<std::byte>> made;
    for (size_t i = 0; i < buffers.out.size(); ++i) {
      const ir::ValueId id = node().outputs[i % node().outputs.size()];
      made.push_back(card.get(static_cast<const std::byte*>(buffers.out[i]),
                              static_cast<size_t>(graph_.type(id).num_bytes())));
    }
    return made;
  }

 private:
  void* input(gpu::Card& card, PhiloxSequence& random, size_t k, const Buffers& first) const {
    const ir::SampleInput& input = sample_.in[k];
    if (input.fill == ir::SampleInput::Fill::absent) return nullptr;
    if (input.type.shape.rank() == 0 && !first.in.empty()) return first.in[k];
    std::vector<double> values(static_cast<size_t>(input.type.shape.num_elements()));
    for (double& value : values) value = draw(input, random);
    return card.put(store(input.type, values));
  }
};

TEST_P(ManyNodes, MoveAsOneByOne) {
  const ir::NodeTypes types(graph_, node());
  gpu::Card card;
  const Buffers together = fill(card), apart = fill(card);
  op_->gpu_many(std::vector(kNodes, types.view(node())))
      .run({.in = together.in, .out = together.out, .stream = &card.stream()});
  const ir::Kernel alone = op_->gpu(types.view(node()));
  const size_t num_in = sample_.in.size(), num_out = node().outputs.size();
  for (size_t n = 0; n < kNodes; ++n) {
    alone.run({.in = std::span(apart.in).subspan(n * num_in, num_in),
               .out = std::span(apart.out).subspan(n * num_out, num_out),
               .stream = &card.stream()});
  }
  const auto got = results(card, together);
  EXPECT_EQ(got, results(card, apart));
  EXPECT_NE(got.front(), results(card, fill(card)).front()) << "nothing moved";
}

/// Small ones: large tensors are a matter of one node.
std::vector<Case> small_cases() {
  std::vector<Case> cases = cases_of([](const ir::OpDef& op) { return op.gpu_many != nullptr; });
  std::erase_if(
      cases, [](const Case& c) { return c.op->samples()[c.sample].in[0].type.shape.num_elements() > 1000; });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ops, ManyNodes, testing::ValuesIn(small_cases()), name_of);

}  // namespace
}  // namespace hearth::ops
