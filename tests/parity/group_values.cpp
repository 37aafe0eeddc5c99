// Rounds a matrix as the op fake_quantize_groups does: group_values FOLDER FORMAT GROUP.
// Reads x and dy from FOLDER/given.safetensors, writes y and dx to FOLDER/found.safetensors.
#include <cstdlib>

#include "base/threads.h"
#include "ops/op_list.h"
#include "tensors.h"

using namespace hearth;

namespace {

std::vector<float> run(const char* op, const ir::Attrs& attrs, const Shape& shape, std::vector<void*> in) {
  const ir::Type type{.dtype = DType::f32, .shape = shape};
  const ir::StandaloneNode node{.attrs = attrs, .in = std::vector(in.size(), type), .out = {type}};
  std::vector<float> out(static_cast<size_t>(shape.num_elements()));
  std::vector<void*> outs = {out.data()};
  ThreadPool threads(2);
  ops::op(op).cpu(node.view()).run({.in = in, .out = outs, .threads = &threads});
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const fs::path folder = argv[1];
  const io::SafetensorsFile file(folder / "given.safetensors");
  GivenTensor x(file, "x"), dy(file, "dy");
  const ir::Attrs attrs = {
      {"format", std::string(argv[2])}, {"group", int64_t{std::atoi(argv[3])}}, {"first_step", int64_t{0}}};
  Found found;
  found.add("y", x.shape, run("fake_quantize_groups", attrs, x.shape, {x.values.data()}));
  found.add("dx", x.shape,
            run("fake_quantize_groups_grad", attrs, x.shape, {x.values.data(), dy.values.data()}));
  found.write(folder);
}
