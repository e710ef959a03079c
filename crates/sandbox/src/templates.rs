//! Which templates can be used now.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use pandastack_api_types::{TemplateName, views};
use pandastack_engine::Engine;
use pandastack_template::{BuiltTemplate, Recipe, TemplateStore};

use crate::{error::CreateError, pool::chain};

/// Templates by name, with what was found on disk remembered until the disk changes.
#[derive(Debug)]
pub(crate) struct Templates {
    store: TemplateStore,
    engine: Arc<dyn Engine>,
    agent: PathBuf,
    found: Mutex<HashMap<&'static str, Found>>,
}

#[derive(Clone, Debug)]
struct Found {
    changed: Option<SystemTime>,
    template: Arc<BuiltTemplate>,
}

impl Templates {
    pub(crate) fn new(store: TemplateStore, engine: Arc<dyn Engine>, agent: PathBuf) -> Self {
        Self { store, engine, agent, found: Mutex::default() }
    }

    /// The built template of a name or alias.
    pub(crate) async fn get(&self, name: &str) -> Result<Arc<BuiltTemplate>, CreateError> {
        let recipe = name.parse::<TemplateName>().ok().and_then(|_| TemplateStore::resolve(name)).ok_or_else(|| {
            let known: Vec<_> = TemplateStore::recipes().iter().map(|recipe| recipe.name.as_str()).collect();
            CreateError::UnknownTemplate { name: shortened(name), known: known.join(", ") }
        })?;
        self.built(recipe).await?.ok_or_else(|| CreateError::TemplateNotBuilt { name: recipe.name.clone() })
    }

    /// One version of a template or alias, the current or an earlier one that is still on disk.
    pub(crate) async fn version(&self, name: &str, hash: &str) -> Option<Arc<BuiltTemplate>> {
        let recipe = TemplateStore::resolve(name)?;
        match self.built(recipe).await {
            Ok(Some(template)) if template.hash == hash => Some(template),
            _ => self.store.by_hash(&recipe.name, hash).map(Arc::new),
        }
    }

    async fn built(&self, recipe: &'static Recipe) -> Result<Option<Arc<BuiltTemplate>>, CreateError> {
        let changed = self.store.changed(recipe);
        {
            let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = found.get(recipe.name.as_str()).filter(|known| known.changed == changed) {
                return Ok(Some(Arc::clone(&known.template)));
            }
        }
        let ready = self
            .store
            .ready(recipe, self.engine.as_ref(), &self.agent)
            .await
            .map_err(|source| CreateError::Template { name: recipe.name.clone(), source: source.into() })?;
        let Some(template) = ready.map(Arc::new) else { return Ok(None) };
        let known = Found { changed, template: Arc::clone(&template) };
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(recipe.name.as_str(), known);
        Ok(Some(template))
    }

    /// Every template and alias, built or not.
    pub(crate) async fn list(&self) -> Vec<views::Template> {
        let mut views = Vec::new();
        for recipe in TemplateStore::recipes() {
            let size = self.size(recipe).await;
            views.push(view(recipe, &recipe.name, None, size));
            for alias in &recipe.aliases {
                views.push(view(recipe, alias, Some(recipe.name.clone()), size));
            }
        }
        views
    }

    /// The size of a built template in bytes, `None` if it is not built.
    async fn size(&self, recipe: &'static Recipe) -> Option<u64> {
        match self.built(recipe).await {
            Ok(built) => built.map(|template| template.size_bytes),
            Err(error) => {
                tracing::warn!(template = %recipe.name, error = %chain(&error), "the template cannot be used");
                None
            }
        }
    }
}

fn view(recipe: &Recipe, name: &str, alias_of: Option<String>, size: Option<u64>) -> views::Template {
    views::Template {
        name: name.to_owned(),
        label: recipe.label.clone(),
        description: recipe.description.clone(),
        category: recipe.category.clone(),
        base: recipe.base(),
        tools: recipe.tools.clone(),
        cpu: recipe.resources().vcpus,
        memory_mb: recipe.resources().memory_mib,
        disk_mb: recipe.resources().disk_mib,
        size_bytes: size.unwrap_or(0),
        is_global: true,
        rootfs_path: String::new(),
        ready: size.is_some(),
        alias_of,
    }
}

/// A name for an error message: it may be anything of any length.
fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}
