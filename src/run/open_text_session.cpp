#include "run/open_text_session.h"

#include "base/error.h"
#include "base/run_files.h"
#include "hub/export.h"
#include "run/from_recipe.h"
#include "tasks/language/text_source.h"

namespace hearth::run {

infer::TextSession open_text_session(const fs::path& model, const fs::path& base,
                                     infer::TextSessionOptions options) {
  if (hub::is_image_run(model))
    user_error("expected a language model, got '{0}', a run on images; try hearth predict {0} IMAGE.png",
               model.string());
  const fs::path recipe = model / kRunRecipe;
  options.chat = tasks::chat_options(fs::is_regular_file(recipe) ? load_recipe(recipe).data : recipe::Data());
  return {hub::find_model(model, base), std::move(options)};
}

}  // namespace hearth::run
