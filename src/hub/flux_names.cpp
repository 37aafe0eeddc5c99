#include "hub/flux_names.h"

#include <algorithm>
#include <charconv>

namespace hearth::hub {
namespace {

/// Max number of blocks of a kind, so that an index in a damaged file cannot exhaust the memory.
constexpr int64_t kMaxBlocks = 1024;

struct Row {
  std::string_view original;
  std::vector<std::string_view> parts;
  bool swapped = false;
};

const std::vector<Row>& attention_rows() {
  static const std::vector<Row> rows = {
      {"img_attn.qkv", {"attn.to_q", "attn.to_k", "attn.to_v"}},
      {"txt_attn.qkv", {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"}},
      {"img_attn.norm.query_norm", {"attn.norm_q"}},
      {"img_attn.norm.key_norm", {"attn.norm_k"}},
      {"txt_attn.norm.query_norm", {"attn.norm_added_q"}},
      {"txt_attn.norm.key_norm", {"attn.norm_added_k"}},
      {"img_attn.proj", {"attn.to_out.0"}},
      {"txt_attn.proj", {"attn.to_add_out"}}};
  return rows;
}

/// Module names that differ between FLUX.1 and FLUX.2.
struct Version {
  std::vector<Row> whole, in_double, in_single;
};

const Version& version_of(bool flux2) {
  static const Version first = {
      .whole = {{"time_in.in_layer", {"time_text_embed.timestep_embedder.linear_1"}},
                {"time_in.out_layer", {"time_text_embed.timestep_embedder.linear_2"}},
                {"guidance_in.in_layer", {"time_text_embed.guidance_embedder.linear_1"}},
                {"guidance_in.out_layer", {"time_text_embed.guidance_embedder.linear_2"}},
                {"vector_in.in_layer", {"time_text_embed.text_embedder.linear_1"}},
                {"vector_in.out_layer", {"time_text_embed.text_embedder.linear_2"}}},
      .in_double = {{"img_mod.lin", {"norm1.linear"}},
                    {"txt_mod.lin", {"norm1_context.linear"}},
                    {"img_mlp.0", {"ff.net.0.proj"}},
                    {"img_mlp.2", {"ff.net.2"}},
                    {"txt_mlp.0", {"ff_context.net.0.proj"}},
                    {"txt_mlp.2", {"ff_context.net.2"}}},
      .in_single = {{"modulation.lin", {"norm.linear"}},
                    {"linear1", {"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"}},
                    {"linear2", {"proj_out"}}}};
  static const Version second = {
      .whole = {{"time_in.in_layer", {"time_guidance_embed.timestep_embedder.linear_1"}},
                {"time_in.out_layer", {"time_guidance_embed.timestep_embedder.linear_2"}},
                {"guidance_in.in_layer", {"time_guidance_embed.guidance_embedder.linear_1"}},
                {"guidance_in.out_layer", {"time_guidance_embed.guidance_embedder.linear_2"}},
                {"double_stream_modulation_img.lin", {"double_stream_modulation_img.linear"}},
                {"double_stream_modulation_txt.lin", {"double_stream_modulation_txt.linear"}},
                {"single_stream_modulation.lin", {"single_stream_modulation.linear"}}},
      .in_double = {{"img_mlp.0", {"ff.linear_in"}},
                    {"img_mlp.2", {"ff.linear_out"}},
                    {"txt_mlp.0", {"ff_context.linear_in"}},
                    {"txt_mlp.2", {"ff_context.linear_out"}}},
      .in_single = {{"linear1", {"attn.to_qkv_mlp_proj"}}, {"linear2", {"attn.to_out"}}}};
  return flux2 ? second : first;
}

void add(std::span<const Row> rows, const std::string& original, const std::string& here,
         std::vector<FluxModule>& modules) {
  for (const Row& row : rows) {
    FluxModule& made = modules.emplace_back();
    made.original = original + std::string(row.original);
    made.swapped = row.swapped;
    for (const std::string_view part : row.parts) made.parts.push_back(here + std::string(part));
  }
}

}  // namespace

std::vector<FluxModule> flux_modules(const FluxBlocks& blocks) {
  const Version& version = version_of(blocks.flux2);
  static const std::vector<Row> both = {{"img_in", {"x_embedder"}},
                                        {"txt_in", {"context_embedder"}},
                                        {"final_layer.linear", {"proj_out"}},
                                        {"final_layer.adaLN_modulation.1", {"norm_out.linear"}, true}};
  static const std::vector<Row> norms = {{"norm.query_norm", {"attn.norm_q"}},
                                         {"norm.key_norm", {"attn.norm_k"}}};
  std::vector<FluxModule> modules;
  add(both, "", "", modules);
  add(version.whole, "", "", modules);
  for (int64_t i = 0; i < std::min(blocks.num_double, kMaxBlocks); ++i) {
    const std::string number = std::to_string(i) + ".";
    add(attention_rows(), "double_blocks." + number, "transformer_blocks." + number, modules);
    add(version.in_double, "double_blocks." + number, "transformer_blocks." + number, modules);
  }
  for (int64_t i = 0; i < std::min(blocks.num_single, kMaxBlocks); ++i) {
    const std::string number = std::to_string(i) + ".";
    add(norms, "single_blocks." + number, "single_transformer_blocks." + number, modules);
    add(version.in_single, "single_blocks." + number, "single_transformer_blocks." + number, modules);
  }
  return modules;
}

int64_t num_blocks(std::span<const std::string> names, std::string_view name) {
  int64_t count = 0;
  for (const std::string& one : names) {
    const size_t at = one.find(name);
    if (at == std::string::npos || at + name.size() + 1 >= one.size()) continue;
    int64_t number = -1;
    std::from_chars(one.data() + at + name.size() + 1, one.data() + one.size(), number);
    count = std::max(count, number + 1);
  }
  return std::min(count, kMaxBlocks);
}

}  // namespace hearth::hub
