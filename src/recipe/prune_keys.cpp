#include "recipe/prune_keys.h"

#include <fmt/format.h>

#include "base/error.h"
#include "recipe/field_kinds.h"

namespace hearth::recipe {
namespace {

/// Throws a UserError if keys of pruning are set without prune.method.
void check_unpruned(const Recipe& recipe, const KeyLocations& locations) {
  if (recipe.prune == Prune{}) return;
  for (const char* key : {"prune.sparsity", "prune.pattern", "prune.scope", "prune.keep", "prune.from_step",
                          "prune.to_step", "prune.every", "prune.drop"}) {
    if (locations.contains(key))
      user_error("{}: {} has no effect without a method; set prune.method=magnitude", locations.of(key), key);
  }
}

void check_prune_schedule(const Recipe& recipe, const KeyLocations& locations) {
  const Prune& prune = recipe.prune;
  const std::string_view method = name_of(prune.method);
  if (prune.method != PruneMethod::magnitude && prune.to_step <= prune.from_step) {
    user_error(
        "{}: prune.method={} needs updates between prune.from_step={} and prune.to_step={}; raise "
        "prune.to_step",
        locations.of("prune.to_step"), method, prune.from_step, prune.to_step);
  }
  if (recipe.train.steps > 0 && prune.last_step() >= recipe.train.steps) {
    user_error(
        "{}: pruning after {} updates is after the last of {}; lower prune.to_step or raise train.steps",
        locations.of(prune.to_step > prune.from_step ? "prune.to_step" : "prune.from_step"),
        prune.last_step(), recipe.train.steps);
  }
  const int64_t local = recipe.exchange.local_steps;
  for (const auto& [key, steps] :
       {std::pair("prune.from_step", prune.from_step), std::pair("prune.to_step", prune.to_step),
        std::pair("prune.every", prune.every)}) {
    if (steps % local != 0) {
      user_error(
          "{}: {}={} is not a multiple of exchange.local_steps={}, after which devices have equal weights",
          locations.of(key), key, steps, local);
    }
  }
}

}  // namespace

void add_prune_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "prune", &Recipe::prune);
  key("method",
      "Prune weights during training: pruned weights stay exactly zero. magnitude: the smallest ones; "
      "movement: "
      "those that training moves towards zero; rigl: also grow weights with large gradients; empty: do not "
      "prune",
      &Prune::method);
  key("sparsity", "Fraction of the weights that are pruned at prune.to_step", &Prune::sparsity,
      RealRange{0, 0.999});
  key("pattern", "unstructured; 2:4, 4:8: of 4 (8) weights of adjacent inputs, half are pruned",
      &Prune::pattern);
  key("scope", "Compare the weights of each layer, or of all layers (global)", &Prune::scope);
  key("keep",
      "Modules that are not pruned, e.g. [conv1]. Embeddings, output heads, norms and biases never are",
      &Prune::keep, OneOrMore());
  key("from_step", "Number of updates before the first pruning", &Prune::from_step, IntegerRange{0});
  key("to_step",
      "Number of updates before the last pruning; the sparsity rises with a cubic schedule. If it "
      "is at most from_step, weights are pruned once",
      &Prune::to_step, IntegerRange{0});
  key("every", "Number of updates between prunings", &Prune::every, IntegerRange{1});
  key("drop", "rigl: fraction of the remaining weights that are replaced at first; decays to 0 with a cosine",
      &Prune::drop, RealRange{0, 1});
}

void check_prune(const Recipe& recipe, const KeyLocations& locations) {
  const Prune& prune = recipe.prune;
  if (prune.method == PruneMethod::none) return check_unpruned(recipe, locations);
  const auto refuse = [&](bool wrong, const char* key, const std::string& why) {
    if (wrong) user_error("{}: {}", locations.of(key), why);
  };
  const std::string method = fmt::format("prune.method={}", name_of(prune.method));
  refuse(recipe.adapter.wanted(), "prune.method",
         method +
             " prunes weights that train, but an adapter freezes them; prune the base model with hearth "
             "prune instead");
  const bool is_group = prune.pattern != PrunePattern::unstructured;
  refuse(is_group && prune.sparsity != 0.5, "prune.sparsity",
         fmt::format("prune.pattern={} prunes half of the weights; remove prune.sparsity",
                     name_of(prune.pattern)));
  refuse(is_group && prune.scope == PruneScope::global, "prune.scope",
         fmt::format("prune.pattern={} compares the weights of a group; remove prune.scope",
                     name_of(prune.pattern)));
  const bool is_rigl = prune.method == PruneMethod::rigl;
  refuse(is_rigl && is_group, "prune.pattern", method + " is for prune.pattern=unstructured");
  refuse(is_rigl && prune.scope == PruneScope::global, "prune.scope", method + " is for prune.scope=layer");
  const bool divides_weights = recipe.devices > 1 && recipe.parallel != Parallel::data;
  const bool has_scores = prune.method != PruneMethod::magnitude;
  refuse(divides_weights && (has_scores || recipe.parallel != Parallel::zero1), "parallel",
         fmt::format("{} needs all weights{} on each device; set parallel=data", method,
                     has_scores ? " and their scores" : ""));
  refuse(has_scores && recipe.exchange.local_steps > 1, "exchange.local_steps",
         method + " needs equal gradients on all devices; set exchange.local_steps=1");
  check_prune_schedule(recipe, locations);
}

}  // namespace hearth::recipe
