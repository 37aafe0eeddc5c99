// Matmuls are measured once, and what was found is kept for the GPU.
#include "exec/device/matmul_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/gpu/emu/stream.h"
#include "backend/gpu/modules.h"
#include "exec/device/gpu_choice.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/op_list.h"
#include "temporary_folder.h"

namespace hearth::exec {
namespace {

using Library = emu::GpuSettings::Library;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class MatmulChoices : public testing::Test {
 protected:
  ~MatmulChoices() override { emu::gpus() = {{}}; }

  /// Two matmuls of one shape, one of another, one of f32.
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

  /// The ways that a new choice with that library finds, and what it says.
  struct Found {
    std::vector<std::string> ways, dropped, replaced;
    int num_autotuned;
  };
  Found choose(Library library) const { return choose({.counts_threads = true, .library = library}); }
  Found choose(const emu::GpuSettings& gpu) const {
    emu::gpus() = {gpu};
    ir::Graph made = graph();
    MatmulChoice choice(find_gpu("emulated"), file());
    choice.choose(made);
    return {ways(made), choice.dropped(), choice.replaced(), choice.num_autotuned()};
  }
  fs::path file() const { return folder_.path() / "matmuls.json"; }
  /// As this process leaves the file while it asks the library.
  void say_trying() const {
    std::string text = read_file(file());
    const std::string tried = "\"tried\"";
    ASSERT_NE(text.find(tried), std::string::npos);
    text.replace(text.find(tried), tried.size(), fmt::format("\"trying {}\"", getpid()));
    write_file_atomically(file(), text);
  }

  TemporaryFolder folder_;
};

TEST_F(MatmulChoices, AreMadeOnceForEachShapeOfACard) {
  ir::Graph first = graph(), again = graph(), elsewhere = graph();
  MatmulChoice choice(find_gpu("emulated"), folder_.path() / "matmuls.json");
  choice.choose(first);
  EXPECT_EQ(choice.num_autotuned(), 2);
  EXPECT_TRUE(choice.dropped().empty()) << choice.dropped().front();
  EXPECT_NE(ways(first)[0], "");
  EXPECT_EQ(ways(first)[0], ways(first)[1]);
  EXPECT_EQ(ways(first)[3], "") << "f32 has one way";

  MatmulChoice next(find_gpu("emulated"), folder_.path() / "matmuls.json");
  next.choose(again);
  EXPECT_EQ(next.num_autotuned(), 0);
  EXPECT_EQ(ways(again), ways(first));

  emu::gpus() = {{}, {}};
  MatmulChoice other(find_gpu("emulated:1"), folder_.path() / "matmuls.json");
  other.choose(elsewhere);
  EXPECT_EQ(other.num_autotuned(), 2) << "another GPU is another matter";
}

TEST_F(MatmulChoices, AreMadeForConvolutionsOfOneTap) {
  ir::Graph made = graph();
  const auto node = [&](const char* op, const Shape& a, const Shape& b, ir::Attrs attrs) {
    const auto value = [&](const Shape& shape) {
      return made.add_value("", {.dtype = DType::bf16, .shape = shape}, ir::Role::input);
    };
    attrs.set("stride", int64_t{1});
    attrs.set("padding", int64_t{0});
    made.add(*ops::find_op(op), {value(a), value(b)}, attrs);
  };
  const ir::Attrs image = {{"in_h", int64_t{4}}, {"in_w", int64_t{5}}};
  const ir::Attrs kernel = {{"kernel_h", int64_t{1}}, {"kernel_w", int64_t{1}}};
  node("conv2d", {1, 4, 5, 33}, {1, 1, 33, 40}, {});
  node("conv2d_moments", {1, 4, 5, 33}, {1, 1, 33, 40}, {});
  node("conv2d_grad_input", {1, 4, 5, 40}, {1, 1, 33, 40}, image);
  node("conv2d_grad_weight", {1, 4, 5, 33}, {1, 4, 5, 40}, kernel);
  node("conv2d", {1, 4, 5, 33}, {3, 3, 33, 40}, {});
  MatmulChoice choice(find_gpu("emulated"), file());
  choice.choose(made);
  const std::vector<std::string> found = ways(made);
  EXPECT_EQ(choice.num_autotuned(), 4) << "two of matmuls, of which forward is one, and two gradients";
  EXPECT_EQ(found[4], found[0]);
  EXPECT_EQ(found[5], found[0]);
  EXPECT_THAT(std::vector<std::string>(found.begin() + 6, found.begin() + 8), Each(Not("")));
  EXPECT_EQ(found[8], "") << "nine taps are no matmul";
}

TEST_F(MatmulChoices, AreWhatRuns) {
  // Few large blocks: the terms of such a long matmul are split among more of them, each with sums apart.
  const auto workspace_of = [](const std::string& way) {
    ir::Graph made;
    const auto value = [&](const Shape& shape) {
      return made.add_value("", {.dtype = DType::bf16, .shape = shape}, ir::Role::input);
    };
    ir::Attrs attrs;
    if (!way.empty()) attrs.set("way", way);
    made.add1(*ops::find_op("matmul"), {value({128, 4096}), value({4096, 1280})}, attrs, "");
    const ir::NodeTypes types(made, made.nodes[0]);
    const ir::NodeView node = types.view(made.nodes[0]);
    return gpu::emulator().kernel("matmul", node).workspace_bytes;
  };
  EXPECT_NE(workspace_of("large"), workspace_of("small"));
  EXPECT_EQ(workspace_of(""), workspace_of("small"));
}

TEST_F(MatmulChoices, AskTheLibraryWhereThereIsOne) {
  const Found without = choose(Library::none);
  const Found with = choose(Library::right);
  EXPECT_EQ(with.num_autotuned, 3) << "f32 has a second way";
  EXPECT_THAT(with.ways, Each("library")) << "which takes the least time";
  EXPECT_THAT(with.dropped, IsEmpty());
  EXPECT_EQ(choose(Library::right).num_autotuned, 0);
  const Found again = choose(Library::none);
  EXPECT_EQ(again.num_autotuned, 0) << "what was measured without it still stands";
  EXPECT_EQ(again.ways, without.ways);
}

TEST_F(MatmulChoices, DropALibraryThatIsWrongOrFails) {
  const Found wrong = choose(Library::wrong);
  EXPECT_THAT(wrong.ways, Each(Not("library")));
  EXPECT_EQ(wrong.dropped.size(), 3U);
  EXPECT_THAT(wrong.dropped, Each(StartsWith("library: expected ")));
  fs::remove(file());
  const Found failing = choose(Library::failing);
  EXPECT_THAT(failing.ways, Each(Not("library")));
  EXPECT_EQ(failing.dropped.size(), 3U);
  EXPECT_THAT(failing.dropped, Each(HasSubstr("configured to fail")));
}

TEST_F(MatmulChoices, DropALibraryThatLosesOneOfManyTerms) {
  emu::gpus() = {{.counts_threads = true, .library = Library::wrong}};
  ir::Graph made;
  const auto value = [&](const Shape& shape) {
    return made.add_value("", {.dtype = DType::bf16, .shape = shape}, ir::Role::input);
  };
  made.add1(*ops::find_op("matmul"), {value({16, 1024}), value({1024, 16})}, {}, "");
  MatmulChoice choice(find_gpu("emulated"), file());
  choice.choose(made);
  EXPECT_THAT(choice.dropped(), ElementsAre(StartsWith("library: expected ")));
}

TEST_F(MatmulChoices, AreLeftToAnotherRunWhereTheTimeIsOver) {
  ir::Graph made = graph();
  MatmulChoice hasty(find_gpu("emulated"), file(), 0);
  hasty.choose(made);
  EXPECT_EQ(hasty.num_autotuned(), 0);
  EXPECT_THAT(ways(made), Each(""));
  EXPECT_THAT(hasty.dropped(), ElementsAre(StartsWith("4 of 4 variants of the matmul 20 40 33 "),
                                           StartsWith("4 of 4 variants of the matmul 7 9 16 ")));
  EXPECT_EQ(choose(Library::none).num_autotuned, 2);
}

TEST_F(MatmulChoices, AreLeftToAnotherRunWhereThereIsNoMemory) {
  emu::gpus() = {{.memory_bytes = 4096, .counts_threads = true}};
  ir::Graph made = graph();
  MatmulChoice choice(find_gpu("emulated"), file());
  choice.choose(made);
  EXPECT_THAT(ways(made), ElementsAre("", "", Not(""), "")) << "the small one";
  EXPECT_THAT(choice.dropped(),
              ElementsAre("4 of 4 variants of the matmul 20 40 33 a 33 1 b 40 1 bf16 bf16 were "
                          "not measured: not enough GPU memory"));
}

TEST_F(MatmulChoices, AreMadeForEachMatmulInsideAnOp) {
  emu::gpus() = {{.counts_threads = true, .library = Library::right}};
  ir::Graph made;
  const auto value = [&](const Shape& shape, DType dtype) {
    return made.add_value("", {.dtype = dtype, .shape = shape}, ir::Role::input);
  };
  const ir::ValueId x = value({40, 32}, DType::bf16), weight = value({70, 32}, DType::bf16),
                    labels = value({40}, DType::i32), dloss = value({}, DType::f32);
  const ir::OpDef& head = *ops::find_op("head_cross_entropy_train");
  made.add(head, {x, weight, labels, dloss}, {}, "trained");
  made.add(head, {x, weight, labels, dloss}, {{"frozen", int64_t{1}}}, "frozen");
  made.add(*ops::find_op("head_cross_entropy"), {x, weight, labels}, {}, "losses");
  MatmulChoice choice(find_gpu("emulated"), file());
  choice.choose(made);
  EXPECT_THAT(ways(made), ElementsAre("library,library,library", "library,library", "library"));
  EXPECT_EQ(choice.num_autotuned(), 3);
}

TEST_F(MatmulChoices, LeaveTheLibraryWhatItTakes) {
  emu::gpus() = {{.counts_threads = true, .library = Library::right}};
  ir::Graph made;
  const auto value = [&](const Shape& shape, DType dtype = DType::f32) {
    return made.add_value("", {.dtype = dtype, .shape = shape}, ir::Role::input);
  };
  const ir::OpDef& matmul = *ops::find_op("matmul");
  made.add1(matmul, {value({8, 8}), value({8, 8}), value({8})}, {}, "bias");
  made.add1(matmul, {value({8, 8}), value({8, 8})}, {{"activation", std::string("relu")}}, "relu");
  made.add1(matmul, {value({8, 8}), value({8, 8}), ir::kNone, value({8, 8})}, {}, "residual");
  made.add1(matmul, {value({8, 8}), value({8, 8})}, {{"out_dtype", std::string("bf16")}}, "narrower");
  made.add1(matmul, {value({8, 8}, DType::f16), value({8, 8}, DType::f16)},
            {{"out_dtype", std::string("f32")}}, "wider");
  MatmulChoice(find_gpu("emulated"), file()).choose(made);
  EXPECT_THAT(ways(made), ElementsAre("", "", "library", "", "library"));
}

TEST_F(MatmulChoices, NeverAskALibraryAgainThatEndedTheProgram) {
  const pid_t child = fork();
  if (child == 0) {
    choose(Library::fatal);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Found after = choose(Library::right);
  EXPECT_THAT(after.ways, Each(Not("library")));
  EXPECT_THAT(after.dropped, ElementsAre(HasSubstr("emulated library 1: disabled, because it crashed")));
  fs::remove(file());
  choose(Library::right);
  say_trying();
  EXPECT_THAT(choose(Library::right).ways, Each("library")) << "who asks it runs";
}

/// Tests with a library that recommends algorithms with given times.
class LibraryAlgorithms : public MatmulChoices {
 protected:
  Found choose(std::vector<int64_t> times, int version = 1) const {
    return MatmulChoices::choose({.counts_threads = true,
                                  .library = Library::right,
                                  .library_version = version,
                                  .algorithm_threads = std::move(times)});
  }
  /// The variant that selects the algorithm with this number, from 1.
  static std::string variant(uint64_t number, uint64_t version = 1) {
    return ops::library_variant({{number, version}});
  }
  /// Replaces the first of the texts in the file.
  void replace(const std::string& from, const std::string& to) const {
    std::string text = read_file(file());
    ASSERT_NE(text.find(from), std::string::npos);
    write_file_atomically(file(), text.replace(text.find(from), from.size(), to));
  }
};

TEST_F(LibraryAlgorithms, AreTimedAndTheFastestIsUsedFromThenOn) {
  const Found first = choose({3, 1, 2});
  EXPECT_EQ(first.num_autotuned, 3);
  EXPECT_THAT(first.ways, Each(variant(2)));
  EXPECT_THAT(first.dropped, IsEmpty());
  const Found later = choose({1, 3, 2});
  EXPECT_EQ(later.num_autotuned, 0);
  EXPECT_THAT(later.ways, Each(variant(2))) << "another heuristic changes nothing";
  EXPECT_THAT(later.replaced, IsEmpty());
}

TEST_F(LibraryAlgorithms, AreMeasuredAgainForAnotherVersion) {
  EXPECT_THAT(choose({3, 1, 2}).replaced, IsEmpty());
  const Found other = choose({1, 2}, 2);
  EXPECT_EQ(other.num_autotuned, 3);
  EXPECT_THAT(other.ways, Each(variant(1, 2)));
  EXPECT_THAT(
      other.replaced,
      ElementsAre("3 matmuls that were measured with emulated library 1 are measured again with emulated "
                  "library 2; results may differ in their last bits"));
  EXPECT_THAT(choose({1, 2}, 2).replaced, IsEmpty());
  const Found back = choose({3, 1, 2});
  EXPECT_EQ(back.num_autotuned, 0) << "the file has both";
  EXPECT_THAT(back.ways, Each(variant(2)));
}

TEST_F(LibraryAlgorithms, AreMeasuredAgainIfTheFileIsNotRight) {
  const std::string right = variant(2), of_another_version = variant(2, 7), unknown = variant(9);
  choose({3, 1, 2});
  for (const auto& [wrong, why] : {std::pair(right.substr(0, right.size() - 1), "128 hexadecimal digits"),
                                   {right + "0", "128 hexadecimal digits"},
                                   {right.substr(0, right.size() - 1) + "x", "128 hexadecimal digits"},
                                   {of_another_version, "the library has no such algorithm"},
                                   {unknown, "the library has no such algorithm"}}) {
    replace(right, wrong);
    const Found found = choose({3, 1, 2});
    EXPECT_EQ(found.num_autotuned, 1) << wrong;
    EXPECT_THAT(found.ways, Each(right));
    EXPECT_THAT(found.replaced, ElementsAre(testing::AllOf(HasSubstr(why), HasSubstr(file().string()))));
  }
  replace(right, "library");
  const Found found = choose({3, 1, 2});
  EXPECT_EQ(found.num_autotuned, 1) << "no algorithm, although the library lists some";
  EXPECT_THAT(found.ways, Each(right));
}

TEST_F(LibraryAlgorithms, AreNumberedInMessages) {
  const Found found =
      MatmulChoices::choose({.counts_threads = true, .library = Library::wrong, .algorithm_threads = {1, 1}});
  EXPECT_EQ(found.dropped.size(), 6U);
  EXPECT_THAT(found.dropped[0], StartsWith("library, algorithm 1: expected "));
  EXPECT_THAT(found.dropped[1], StartsWith("library, algorithm 2: expected "));
}

TEST_F(LibraryAlgorithms, AreChosenWithTheResidual) {
  emu::gpus() = {{.counts_threads = true, .library = Library::right, .algorithm_threads = {2, 1}}};
  ir::Graph made;
  const auto value = [&] {
    return made.add_value("", {.dtype = DType::bf16, .shape = {8, 8}}, ir::Role::input);
  };
  const ir::OpDef& matmul = *ops::find_op("matmul");
  made.add1(matmul, {value(), value()}, {}, "alone");
  made.add1(matmul, {value(), value(), ir::kNone, value()}, {}, "residual");
  MatmulChoice choice(find_gpu("emulated"), file());
  choice.choose(made);
  EXPECT_EQ(choice.num_autotuned(), 2);
  EXPECT_THAT(ways(made), Each(variant(2)));
  EXPECT_THAT(choice.dropped(), IsEmpty());
  EXPECT_THAT(read_file(file()), HasSubstr("|8 8 8 a 8 1 b 8 1 bf16 bf16 + c\""));
}

}  // namespace
}  // namespace hearth::exec
