// Products are measured once, and what was found is kept for the card.
#include "exec/product_choice.h"

#include <gtest/gtest.h>

#include "backend/gpu/emu/stream.h"
#include "ops/matmul/product.h"
#include "ops/op_list.h"
#include "temporary_folder.h"

namespace hearth::exec {
namespace {

class ProductChoices : public testing::Test {
 protected:
  ~ProductChoices() override { emu::cards() = {{}}; }

  /// Two products of one shape, one of another, one of f32.
  static ir::Graph graph() {
    ir::Graph made;
    const auto multiply = [&](const Shape& a, const Shape& b, DType dtype) {
      const auto value = [&](const Shape& shape) {
        return made.add_value("", {.dtype = dtype, .shape = shape}, ir::Role::input);
      };
      made.outputs.push_back(made.add1(*ops::find_op("matmul"), {value(a), value(b)}, {}, ""));
    };
    multiply({20, 33}, {33, 40}, DType::bf16);
    multiply({20, 33}, {33, 40}, DType::bf16);
    multiply({7, 16}, {16, 9}, DType::f16);
    multiply({7, 16}, {16, 9}, DType::f32);
    return made;
  }
  static std::vector<std::string> ways(const ir::Graph& graph) {
    std::vector<std::string> all;
    for (const ir::Node& node : graph.nodes) all.push_back(node.attrs.text_or("way", ""));
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(ProductChoices, AreMadeOnceForEachShapeOfACard) {
  ir::Graph first = graph(), again = graph(), elsewhere = graph();
  ProductChoice choice(0, folder_.path() / "products.json");
  choice.choose(first);
  EXPECT_EQ(choice.num_contests(), 2);
  EXPECT_TRUE(choice.dropped().empty()) << choice.dropped().front();
  EXPECT_NE(ways(first)[0], "");
  EXPECT_EQ(ways(first)[0], ways(first)[1]);
  EXPECT_EQ(ways(first)[3], "") << "f32 has one way";

  ProductChoice next(0, folder_.path() / "products.json");
  next.choose(again);
  EXPECT_EQ(next.num_contests(), 0);
  EXPECT_EQ(ways(again), ways(first));

  emu::cards() = {{}, {}};
  ProductChoice other(1, folder_.path() / "products.json");
  other.choose(elsewhere);
  EXPECT_EQ(other.num_contests(), 2) << "another card is another matter";
}

TEST_F(ProductChoices, AreWhatRuns) {
  // Few large blocks: the terms of such a long product are split among more of them, each with sums apart.
  const auto workspace_of = [](const std::string& way) {
    ir::Graph made;
    const auto value = [&](const Shape& shape) {
      return made.add_value("", {.dtype = DType::bf16, .shape = shape}, ir::Role::input);
    };
    ir::Attrs attrs;
    if (!way.empty()) attrs.set("way", way);
    made.add1(*ops::find_op("matmul"), {value({128, 4096}), value({4096, 1280})}, attrs, "");
    const ir::NodeTypes types(made, made.nodes[0]);
    return ops::find_op("matmul")->gpu(types.view(made.nodes[0])).workspace_bytes;
  };
  EXPECT_NE(workspace_of("large"), workspace_of("small"));
  EXPECT_EQ(workspace_of(""), workspace_of("small"));
}

}  // namespace
}  // namespace hearth::exec
